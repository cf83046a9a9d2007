//! Overlapping attempts to connect to the addresses of one host (RFC 8305, section 5).

use std::{io, net::SocketAddr, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{FetchError, RequestLimits, address::JudgedAddresses};

/// Connects to the addresses in order until one accepts. The next attempt starts when an attempt fails, or
/// after [`ATTEMPT_DELAY`]. The first connection wins, and the other attempts are cancelled.
///
/// # Cancellation
/// Dropping the future closes the connections.
pub(crate) async fn dial(
    host: &str,
    port: u16,
    addresses: &JudgedAddresses,
    limits: &RequestLimits,
) -> Result<(SocketAddr, TcpStream), FetchError> {
    let timeout_error =
        || FetchError::ConnectTimeout { host: host.to_owned(), limit: limits.connect_timeout };
    let mut last_error = timeout_error();
    let mut waiting = addresses.iter();
    let mut in_flight = FuturesUnordered::new();
    let mut may_begin = true;
    loop {
        if std::mem::take(&mut may_begin)
            && let Some(address) = waiting.next()
        {
            in_flight.push(async move {
                (address, timeout(limits.connect_timeout, TcpStream::connect(address)).await)
            });
        }
        let has_more = waiting.len() > 0;
        tokio::select! {
            ended = in_flight.next() => match ended {
                // Nothing is in flight, so every address has failed.
                None => return Err(last_error),
                Some((address, Ok(Ok(stream)))) => {
                    // Disable Nagle's algorithm: a request is one write, and must not be delayed. An error
                    // only makes the connection slower, so it is ignored.
                    let _slower = stream.set_nodelay(true);
                    return Ok((address, stream));
                }
                // Landlock refuses the port, so the other addresses would fail too.
                Some((_, Ok(Err(source)))) if source.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(FetchError::PortClosed { port });
                }
                Some((address, Ok(Err(source)))) => {
                    last_error = FetchError::ConnectFailed { host: host.to_owned(), address, source };
                    may_begin = true;
                }
                Some((_, Err(_elapsed))) => {
                    last_error = timeout_error();
                    may_begin = true;
                }
            },
            () = sleep(ATTEMPT_DELAY), if has_more => may_begin = true,
        }
    }
}

/// The delay before the next attempt starts while the last one is unanswered: 250 ms, as RFC 8305, section 5,
/// recommends.
pub(crate) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
