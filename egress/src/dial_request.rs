//! Raw connections, for a client of this process that speaks its own protocol.

use std::net::TcpStream;

use http::Method;
use tokio::time::timeout;
use url::Url;

use crate::{FetchError, Judge, fetch::FetchClient, route::Route, target::Target};

/// Asks the judge about the URL's host and all its addresses, and connects to one of them or through the
/// proxy. The stream is non-blocking and has no TLS.
///
/// # Cancellation
/// Dropping the future closes the connection.
pub(crate) async fn connect(
    client: &FetchClient,
    judge: &dyn Judge,
    url: &Url,
) -> Result<TcpStream, FetchError> {
    let (target, route) = judge_route(client, judge, url).await?;
    let limits = judge.limits();
    let (address, stream) = route.tunnel(&target, &limits).await?;
    stream.into_std().map_err(|source| FetchError::ConnectFailed { host: target.host, address, source })
}

/// Asks the judge about a host and all its addresses, as for a request with the method `CONNECT`.
pub(crate) async fn judge_route<'c>(
    client: &'c FetchClient,
    judge: &dyn Judge,
    url: &Url,
) -> Result<(Target, Route<'c>), FetchError> {
    // Ask the judge before checking the ports: its refusal names the missing grant.
    judge.judge_request(&Method::CONNECT, url)?;
    let target = Target::parse(url, &client.ports)?;
    let limits = judge.limits();
    let resolved = Route::judge(client, &target, judge, &limits);
    let route = timeout(limits.first_byte_timeout, resolved).await.map_err(|_elapsed| {
        FetchError::ResolveTimeout { host: target.host.clone(), limit: limits.first_byte_timeout }
    })??;
    Ok((target, route))
}
