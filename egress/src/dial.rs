//! A connection for a client of this process that speaks its own protocol over it.

use std::net::TcpStream;

use http::Method;
use tokio::time::timeout;
use url::Url;

use crate::{FetchError, Judge, fetch::Client, route::Route, target::Target};

/// Has the URL's host and all its addresses judged, and connects to one of them, or through the proxy. The stream does
/// not block, and has no TLS.
///
/// # Cancellation
/// Dropping the future closes the connection.
pub(crate) async fn connect(client: &Client, judge: &dyn Judge, url: &Url) -> Result<TcpStream, FetchError> {
    let (target, route) = judged(client, judge, url).await?;
    let limits = judge.limits();
    let (address, stream) = route.tunnel(&target, &limits).await?;
    stream.into_std().map_err(|source| FetchError::ConnectFailed { host: target.host, address, source })
}

/// Has a host and all its addresses judged, as those of a request with the method `CONNECT`.
pub(crate) async fn judged<'c>(
    client: &'c Client,
    judge: &dyn Judge,
    url: &Url,
) -> Result<(Target, Route<'c>), FetchError> {
    // Before the ports of the threads: the judge says what would have to be granted.
    judge.request(&Method::CONNECT, url)?;
    let target = Target::of(url, &client.ports)?;
    let asked = judge.limits();
    let resolved = Route::of(client, &target, judge, &asked);
    let route = timeout(asked.first_byte, resolved)
        .await
        .map_err(|_elapsed| FetchError::TotalTimeout { limit: asked.first_byte })??;
    Ok((target, route))
}
