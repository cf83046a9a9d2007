//! A connection for a client of this process that speaks its own protocol over it.

use std::net::TcpStream;

use http::Method;
use tokio::time::timeout;
use url::Url;

use crate::{FetchError, Judge, address::JudgedAddresses, connection::dial, fetch::Client, target::Target};

/// Has the URL's host and all its addresses judged, and connects to one of them. The stream does not block, and has no
/// TLS.
///
/// # Cancellation
/// Dropping the future closes the connection.
pub(crate) async fn connect(client: &Client, judge: &dyn Judge, url: &Url) -> Result<TcpStream, FetchError> {
    let (target, addresses) = judged(client, judge, url).await?;
    let limits = judge.limits();
    let (address, stream) = dial(&target, &addresses, &limits).await?;
    stream.into_std().map_err(|source| FetchError::ConnectFailed { host: target.host, address, source })
}

/// Has a host and all its addresses judged, as those of a request with the method `CONNECT`.
pub(crate) async fn judged(
    client: &Client,
    judge: &dyn Judge,
    url: &Url,
) -> Result<(Target, JudgedAddresses), FetchError> {
    // Before the ports of the threads: the judge says what would have to be granted.
    judge.request(&Method::CONNECT, url)?;
    let target = Target::of(url, &client.ports)?;
    let asked = judge.limits();
    let resolved = JudgedAddresses::of(&target, &client.resolver, judge, &asked);
    let addresses = timeout(asked.first_byte, resolved)
        .await
        .map_err(|_elapsed| FetchError::TotalTimeout { limit: asked.first_byte })??;
    Ok((target, addresses))
}
