//! Attempts to connect to the addresses of one host, which overlap (RFC 8305, section 5).

use std::{io, net::SocketAddr, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{FetchError, Limits, address::JudgedAddresses};

/// Connects to the addresses in their order until one accepts. The next attempt begins when one has failed, or after
/// [`ATTEMPT_DELAY`]. The first connection is taken, and the other attempts are given up.
///
/// # Cancellation
/// Dropping the future closes the connections.
pub(crate) async fn dial(
    host: &str,
    port: u16,
    addresses: &JudgedAddresses,
    limits: &Limits,
) -> Result<(SocketAddr, TcpStream), FetchError> {
    let too_late = || FetchError::ConnectTimeout { host: host.to_owned(), limit: limits.connect };
    let mut last = too_late();
    let mut waiting = addresses.iter();
    let mut under_way = FuturesUnordered::new();
    let mut may_begin = true;
    loop {
        if std::mem::take(&mut may_begin)
            && let Some(address) = waiting.next()
        {
            under_way
                .push(async move { (address, timeout(limits.connect, TcpStream::connect(address)).await) });
        }
        let has_more = waiting.len() > 0;
        tokio::select! {
            ended = under_way.next() => match ended {
                None => return Err(last),
                Some((address, Ok(Ok(stream)))) => {
                    // A request is one write, and must not wait for more. If the kernel refuses, it is only slower.
                    let _slower = stream.set_nodelay(true);
                    return Ok((address, stream));
                }
                // Landlock's refusal.
                Some((_, Ok(Err(source)))) if source.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(FetchError::PortClosed { port });
                }
                Some((address, Ok(Err(source)))) => {
                    last = FetchError::ConnectFailed { host: host.to_owned(), address, source };
                    may_begin = true;
                }
                Some((_, Err(_elapsed))) => {
                    last = too_late();
                    may_begin = true;
                }
            },
            () = sleep(ATTEMPT_DELAY), if has_more => may_begin = true,
        }
    }
}

/// The time until the next address is tried while the last one has not answered: the value that RFC 8305, section 5,
/// recommends.
pub(crate) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
