//! A tunnel: TLS of a confined program to a host that the judge lets through, carried without being read.
//!
//! A client asks for one by HTTP's `CONNECT` (RFC 9110, section 9.3.6). Nothing of that request reaches a server.
//! The order: the head, the judge, the name's addresses and the judge again, the answer, the client's first
//! message of TLS, whose server name must be the host, and only then a connection. So a client without the right
//! first message reaches nothing.
//!
//! - `head` reads the request; `hello` reads the first message of TLS.
//! - `relay` carries bytes, both ways.
//! - `error` has the reasons for which a tunnel is not opened.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};

use crate::{FetchError, Judge, dial::judged, fetch::Client, route::Route, target::Target};

mod error;
mod head;
mod hello;
mod relay;

pub(crate) use error::TunnelError;
use head::ConnectHead;

/// Bounds of one tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelLimits {
    /// The client's request, in bytes. Default 8 KiB.
    pub head_bytes: usize,
    /// The client's bytes up to the end of its first message of TLS. Default 32 KiB.
    pub hello_bytes: usize,
    /// From the connection to the end of the request, and from the answer to the end of the first message of TLS.
    /// Default 10 seconds each.
    pub greeting: Duration,
    /// The longest time without a byte in either direction. Default 5 minutes.
    pub idle: Duration,
}

impl Default for TunnelLimits {
    fn default() -> Self {
        Self {
            head_bytes: 8 << 10,
            hello_bytes: 32 << 10,
            greeting: Duration::from_secs(10),
            idle: Duration::from_secs(300),
        }
    }
}

/// A tunnel as it is seen from outside, while it lasts and after. Cheap to clone; all clones see the same tunnel.
#[derive(Clone, Debug, Default)]
pub struct TunnelWatch(Arc<Mutex<TunnelFacts>>);

/// What is known of a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelFacts {
    /// The host that the client asked for, in lower case, and the port; none if its request could not be read.
    pub target: Option<(String, u16)>,
    /// The address of the connection, which is the proxy's where there is one; none if none was made.
    pub address: Option<SocketAddr>,
    /// Bytes of the client that the server's side has taken.
    pub sent: u64,
    /// Bytes of the server that the client's side has taken.
    pub received: u64,
    /// How the tunnel ended; none while it lasts.
    pub end: Option<TunnelEnd>,
}

/// How a tunnel ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelEnd {
    /// Both sides have finished.
    Closed,
    /// No byte came for as long as the limit.
    Idle,
    /// The caller cancelled it.
    Cancelled,
    /// A side broke the connection, or the thread has ended.
    Broken,
    /// It was not opened.
    Refused {
        /// The judge's code, or that of the fault.
        code: &'static str,
        /// The reason in words, without a host path.
        reason: String,
    },
}

impl TunnelEnd {
    /// One word: `closed`, `idle`, `cancelled`, `broken`, or the code of a refusal.
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
    /// What is known now.
    #[must_use]
    pub fn facts(&self) -> TunnelFacts {
        self.lock().clone()
    }

    pub(crate) fn end(&self, end: TunnelEnd) {
        self.lock().end.get_or_insert(end);
    }

    pub(crate) fn refuse(&self, error: &FetchError) {
        self.end(TunnelEnd::Refused { code: error.code(), reason: error.to_string() });
    }

    fn lock(&self) -> MutexGuard<'_, TunnelFacts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves one client's connection to its end.
///
/// # Cancellation
/// Dropping the future closes both connections.
pub(crate) async fn carry(
    client: &Client,
    judge: &dyn Judge,
    stream: std::net::TcpStream,
    limits: &TunnelLimits,
    watch: &TunnelWatch,
) -> TunnelEnd {
    let Ok(mut inner) = TcpStream::from_std(stream) else { return TunnelEnd::Broken };
    // Small messages must not wait for more. If the kernel refuses, it is only slower.
    let _slower = inner.set_nodelay(true);
    match open(client, judge, &mut inner, limits, watch).await {
        Ok((outer, hello)) => match relay::both_ways(inner, outer, hello, limits.idle, watch).await {
            Ok(end) => end,
            Err(_broken) => TunnelEnd::Broken,
        },
        Err(error) => refused(&error),
    }
}

fn refused(error: &TunnelError) -> TunnelEnd {
    TunnelEnd::Refused { code: error.code(), reason: error.to_string() }
}

/// Opens the tunnel: the connection to the server, and the client's first message for it.
async fn open(
    client: &Client,
    judge: &dyn Judge,
    inner: &mut TcpStream,
    limits: &TunnelLimits,
    watch: &TunnelWatch,
) -> Result<(TcpStream, Vec<u8>), TunnelError> {
    let (head, target, route) = match admit(client, judge, inner, limits, watch).await {
        Ok(admitted) => admitted,
        Err(error) => {
            // First: a row that is written once the client has its answer must have the refusal.
            watch.end(refused(&error));
            // An error is ignored: the client may be gone.
            let _gone = inner.write_all(error.answer().as_bytes()).await;
            return Err(error);
        }
    };
    inner.write_all(ESTABLISHED).await?;
    let greeted = timeout(limits.greeting, hello::read(inner, head.early, limits.hello_bytes)).await;
    let hello = greeted.unwrap_or(Err(TunnelError::HelloTimeout { limit: limits.greeting }));
    let connected = match hello.and_then(|hello| hello.require_name(&head.host)) {
        Ok(hello) => connect(&target, &route, judge, watch).await.map(|outer| (outer, hello)),
        Err(error) => Err(error),
    };
    if let Err(error) = &connected {
        watch.end(refused(error));
        // A client of TLS shows it as such. An error is ignored: the client may be gone.
        let _gone = inner.write_all(ACCESS_DENIED).await;
    }
    connected
}

/// Reads the client's request, and has the host and all its addresses judged.
async fn admit<'c>(
    client: &'c Client,
    judge: &dyn Judge,
    inner: &mut TcpStream,
    limits: &TunnelLimits,
    watch: &TunnelWatch,
) -> Result<(ConnectHead, Target, Route<'c>), TunnelError> {
    let read = timeout(limits.greeting, head::read(inner, limits.head_bytes)).await;
    let head = read.unwrap_or(Err(TunnelError::HeadTimeout { limit: limits.greeting }))?;
    watch.lock().target = Some((head.host.clone(), head.port));
    let (target, route) = judged(client, judge, &head.url).await?;
    Ok((head, target, route))
}

async fn connect(
    target: &Target,
    route: &Route<'_>,
    judge: &dyn Judge,
    watch: &TunnelWatch,
) -> Result<TcpStream, TunnelError> {
    let (address, outer) = route.tunnel(target, &judge.limits()).await?;
    watch.lock().address = Some(address);
    Ok(outer)
}

impl From<io::Error> for TunnelError {
    fn from(source: io::Error) -> Self {
        Self::Broken { source }
    }
}

/// The answer after which the client's bytes are the tunnel's.
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// The fatal alert `access_denied` (RFC 8446, sections 5.1 and 6.2).
const ACCESS_DENIED: &[u8] = &[21, 3, 3, 0, 2, 2, 49];
