//! Tunnels: they relay a confined program's TLS connection to an allowed host, without decrypting it.
//!
//! A client asks for a tunnel by HTTP `CONNECT` (RFC 9110, section 9.3.6). The request itself is never
//! forwarded. The steps:
//!
//! 1. Read the head of the request.
//! 2. Ask the judge about the host.
//! 3. Resolve the name.
//! 4. Ask the judge about the addresses.
//! 5. Respond to the client.
//! 6. Read the first TLS message (`ClientHello`), whose server name must be the host.
//! 7. Connect.
//!
//! A client without a matching `ClientHello` therefore reaches no server.
//!
//! - `head` reads the request, and `hello` reads the `ClientHello`.
//! - `relay` carries the bytes in both directions.
//! - `share` limits the tunnels of one owner.
//! - `error` has the reasons why a tunnel is not opened.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};

use crate::{FetchError, Judge, dial_request::judge_route, fetch::FetchClient, route::Route, target::Target};

mod error;
mod head;
mod hello;
mod relay;
mod share;

pub use share::TunnelShare;

pub(crate) use error::TunnelError;
use head::ConnectHead;

/// The limits of one tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelLimits {
    /// The maximum length of the client's request, in bytes. Default: 8 KiB.
    pub head_bytes: usize,
    /// The maximum number of bytes that the client sends until its `ClientHello` is complete. Default: 32 KiB.
    pub hello_bytes: usize,
    /// The timeout from the connection to the end of the request, and again from the response to the end of the
    /// `ClientHello`. Default: 10 s each.
    pub greeting_timeout: Duration,
    /// The timeout of a tunnel that carries no byte in either direction. Default: 5 minutes.
    pub idle_timeout: Duration,
}

impl Default for TunnelLimits {
    fn default() -> Self {
        Self {
            head_bytes: 8 << 10,
            hello_bytes: 32 << 10,
            greeting_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
        }
    }
}

/// A view of a tunnel's facts, during and after the tunnel. Cheap to clone: all clones see the same tunnel.
#[derive(Clone, Debug, Default)]
pub struct TunnelWatch(Arc<Mutex<TunnelReport>>);

/// The facts about a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelReport {
    /// The host that the client asked for, in lower case, and the port. `None` if the request could not be read.
    pub target: Option<(String, u16)>,
    /// The address that was connected to, which is the proxy's if there is one. `None` if no connection was made.
    pub address: Option<SocketAddr>,
    /// The number of bytes from the client that were written to the server.
    pub sent: u64,
    /// The number of bytes from the server that were written to the client.
    pub received: u64,
    /// How the tunnel ended. `None` while it is open.
    pub end: Option<TunnelEnd>,
}

/// How a tunnel ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelEnd {
    /// Both sides have finished sending.
    Closed,
    /// No byte was carried for [`TunnelLimits::idle_timeout`].
    Idle,
    /// The caller cancelled the tunnel.
    Cancelled,
    /// A connection broke, or the thread ended or panicked.
    Broken,
    /// The tunnel was not opened.
    Refused {
        /// The code of the judge's refusal, or of the error.
        code: &'static str,
        /// The reason in words, without a host path.
        reason: String,
    },
}

impl TunnelEnd {
    /// Returns one word: `closed`, `idle`, `cancelled`, `broken`, or the code of a refusal.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Cancelled => "cancelled",
            Self::Broken => "broken",
            Self::Refused { code, .. } => code,
        }
    }
}

impl TunnelWatch {
    /// Returns the facts so far.
    #[must_use]
    pub fn report(&self) -> TunnelReport {
        self.lock().clone()
    }

    pub(crate) fn end(&self, end: TunnelEnd) {
        self.lock().end.get_or_insert(end);
    }

    pub(crate) fn refuse(&self, error: &FetchError) {
        self.end(TunnelEnd::Refused { code: error.code(), reason: error.to_string() });
    }

    fn lock(&self) -> MutexGuard<'_, TunnelReport> {
        self.0.lock()
    }
}

/// Serves one client's connection until it ends.
///
/// # Cancellation
/// Dropping the future closes both connections.
pub(crate) async fn relay(
    client: &FetchClient,
    judge: &dyn Judge,
    stream: std::net::TcpStream,
    limits: &TunnelLimits,
    watch: &TunnelWatch,
) -> TunnelEnd {
    let Ok(mut client_stream) = TcpStream::from_std(stream) else { return TunnelEnd::Broken };
    // Disable Nagle's algorithm, so that small messages are not delayed. An error only makes the tunnel
    // slower, so it is ignored.
    let _slower = client_stream.set_nodelay(true);
    match open(client, judge, &mut client_stream, limits, watch).await {
        Ok((server_stream, hello)) => {
            match relay::relay_both_ways(client_stream, server_stream, hello, limits.idle_timeout, watch)
                .await
            {
                Ok(end) => end,
                Err(_broken) => TunnelEnd::Broken,
            }
        }
        Err(error) => refused_end(&error),
    }
}

/// Refuses a client because no tunnel is free. Reads its request first, because an earlier response could be
/// lost.
///
/// # Cancellation
/// Dropping the future closes the connection.
pub(crate) async fn refuse_busy(
    stream: std::net::TcpStream,
    limits: &TunnelLimits,
    watch: &TunnelWatch,
) -> TunnelEnd {
    let Ok(mut client_stream) = TcpStream::from_std(stream) else { return TunnelEnd::Broken };
    let error = match read_head(&mut client_stream, limits, watch).await {
        Ok(_head) => FetchError::Busy.into(),
        Err(error) => error,
    };
    refuse(&mut client_stream, &error, error.response().as_bytes(), watch).await;
    refused_end(&error)
}

/// Records a refusal, and then responds to the client. The order matters: the audit row may be written as soon as
/// the client has its response.
async fn refuse(client_stream: &mut TcpStream, error: &TunnelError, response: &[u8], watch: &TunnelWatch) {
    watch.end(refused_end(error));
    // The client may be gone, so an error is ignored.
    let _ignored = client_stream.write_all(response).await;
}

fn refused_end(error: &TunnelError) -> TunnelEnd {
    TunnelEnd::Refused { code: error.code(), reason: error.to_string() }
}

/// Opens the tunnel. Returns the connection to the server, and the client's first bytes for it.
async fn open(
    client: &FetchClient,
    judge: &dyn Judge,
    client_stream: &mut TcpStream,
    limits: &TunnelLimits,
    watch: &TunnelWatch,
) -> Result<(TcpStream, Vec<u8>), TunnelError> {
    let (head, target, route) = match admit(client, judge, client_stream, limits, watch).await {
        Ok(admitted) => admitted,
        Err(error) => {
            refuse(client_stream, &error, error.response().as_bytes(), watch).await;
            return Err(error);
        }
    };
    client_stream.write_all(ESTABLISHED).await?;
    let hello_result =
        timeout(limits.greeting_timeout, hello::read(client_stream, head.early_bytes, limits.hello_bytes))
            .await;
    let hello = hello_result.unwrap_or(Err(TunnelError::HelloTimeout { limit: limits.greeting_timeout }));
    let connected = match hello.and_then(|hello| hello.require_name(&head.host)) {
        Ok(hello) => connect(&target, &route, judge, watch).await.map(|server_stream| (server_stream, hello)),
        Err(error) => Err(error),
    };
    if let Err(error) = &connected {
        // A TLS client reports the alert to its user.
        refuse(client_stream, error, ACCESS_DENIED, watch).await;
    }
    connected
}

/// Reads the client's request, and asks the judge about the host and all its addresses.
async fn admit<'c>(
    client: &'c FetchClient,
    judge: &dyn Judge,
    client_stream: &mut TcpStream,
    limits: &TunnelLimits,
    watch: &TunnelWatch,
) -> Result<(ConnectHead, Target, Route<'c>), TunnelError> {
    let head = read_head(client_stream, limits, watch).await?;
    let (target, route) = judge_route(client, judge, &head.url).await?;
    Ok((head, target, route))
}

/// Reads the client's request, and records its target.
async fn read_head(
    client_stream: &mut TcpStream,
    limits: &TunnelLimits,
    watch: &TunnelWatch,
) -> Result<ConnectHead, TunnelError> {
    let read_result = timeout(limits.greeting_timeout, head::read(client_stream, limits.head_bytes)).await;
    let head = read_result.unwrap_or(Err(TunnelError::HeadTimeout { limit: limits.greeting_timeout }))?;
    watch.lock().target = Some((head.host.clone(), head.port));
    Ok(head)
}

async fn connect(
    target: &Target,
    route: &Route<'_>,
    judge: &dyn Judge,
    watch: &TunnelWatch,
) -> Result<TcpStream, TunnelError> {
    let (address, server_stream) = route.tunnel(target, &judge.limits()).await?;
    watch.lock().address = Some(address);
    Ok(server_stream)
}

impl From<io::Error> for TunnelError {
    fn from(source: io::Error) -> Self {
        Self::Broken { source }
    }
}

/// The response that opens the tunnel. The bytes that the client then sends belong to TLS.
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// The fatal alert `access_denied` (RFC 8446, sections 5.1 and 6.2).
const ACCESS_DENIED: &[u8] = &[21, 3, 3, 0, 2, 2, 49];
