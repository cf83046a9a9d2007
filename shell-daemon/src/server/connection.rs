//! One client's connection, with its sessions and commands. No other connection can name them, and they end with
//! their connection.

use std::{
    collections::HashMap,
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use portcullis_egress::TunnelShare;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Request, Status, transport::server::Connected};

use super::{command::CommandControl, refusal::RefusalCode, session_thread::HeldSession};

/// A call's handle to its connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectionHandle(Arc<ClientConnection>);

impl ConnectionHandle {
    /// The connection that a request came over.
    ///
    /// # Errors
    /// `failed`, if the request has no connection of this sidecar. Only a bug could cause this.
    pub(super) fn from_request<T>(request: &Request<T>) -> Result<Self, Status> {
        let client = request.extensions().get::<Self>();
        client.cloned().ok_or_else(|| RefusalCode::Failed.status("the call belongs to no connection"))
    }

    /// Records that the client has sent the token: the greeting timeout no longer applies.
    pub(super) fn note_token(&self) {
        self.0.is_authenticated.store(true, Ordering::Release);
    }

    pub(super) fn connection(&self) -> &Arc<ClientConnection> {
        &self.0
    }
}

/// A client's connection, with its state of authentication.
#[derive(Debug)]
pub(super) struct ClientConnection {
    is_authenticated: AtomicBool,
    /// Permits for the sessions that the client may still start.
    pub(super) session_permits: Arc<Semaphore>,
    owned_sessions: Mutex<OwnedByConnection>,
    closed: CancellationToken,
    hangup: CancellationToken,
}

/// The sessions and commands that end with a connection.
#[derive(Debug, Default)]
struct OwnedByConnection {
    sessions: HashMap<RandomId, Arc<HeldSession>>,
    commands: HashMap<RandomId, Arc<CommandControl>>,
    /// The permits for tunnels of each owner of sessions.
    shares: HashMap<String, TunnelShare>,
    is_closed: bool,
}

impl ClientConnection {
    fn new(sessions: usize, cut: CancellationToken) -> Self {
        Self {
            is_authenticated: AtomicBool::new(false),
            session_permits: Arc::new(Semaphore::new(sessions)),
            owned_sessions: Mutex::default(),
            closed: CancellationToken::new(),
            hangup: cut,
        }
    }

    /// The session with an id.
    ///
    /// # Errors
    /// `not_found`, if the connection is closed or has no such session. A session of another connection gives the
    /// same error.
    pub(super) fn session(&self, id: &str) -> Result<(RandomId, Arc<HeldSession>), Status> {
        let not_found = || RefusalCode::NotFound.status("this connection has no such session");
        let id = RandomId::parse(id).ok_or_else(not_found)?;
        let session = self.lock().sessions.get(&id).cloned().ok_or_else(not_found)?;
        Ok((id, session))
    }

    /// Removes the session from the connection and returns it. The errors are those of [`Self::session`].
    pub(super) fn take_session(&self, id: &str) -> Result<Arc<HeldSession>, Status> {
        let (id, session) = self.session(id)?;
        self.forget_session(id);
        Ok(session)
    }

    pub(super) fn sessions(&self) -> Vec<(RandomId, Arc<HeldSession>)> {
        self.lock().sessions.iter().map(|(id, session)| (*id, Arc::clone(session))).collect()
    }

    /// Adds a session. On a closed connection the session is dropped, which ends it.
    pub(super) fn add_session(&self, id: RandomId, session: HeldSession) {
        let mut owned = self.lock();
        if !owned.is_closed {
            owned.sessions.insert(id, Arc::new(session));
        }
    }

    pub(super) fn forget_session(&self, id: RandomId) {
        // Release the lock before the session is dropped, because the drop cancels the session's command.
        let forgotten = self.lock().sessions.remove(&id);
        drop(forgotten);
    }

    /// Returns the permits for tunnels that this owner's sessions share. Without a name, the session gets
    /// separate permits.
    pub(super) fn share_of(&self, owner: &str) -> TunnelShare {
        if owner.is_empty() {
            return TunnelShare::default();
        }
        let shares = &mut self.lock().shares;
        shares.retain(|_, share| !share.is_unused());
        shares.entry(owner.to_owned()).or_default().clone()
    }

    pub(super) fn command(&self, id: &str) -> Result<Arc<CommandControl>, Status> {
        let command = RandomId::parse(id).and_then(|id| self.lock().commands.get(&id).cloned());
        command.ok_or_else(|| RefusalCode::NotFound.status("this connection runs no such command"))
    }

    pub(super) fn add_command(&self, id: RandomId, control: Arc<CommandControl>) {
        let mut owned = self.lock();
        if owned.is_closed {
            control.cancel();
        } else {
            owned.commands.insert(id, control);
        }
    }

    pub(super) fn forget_command(&self, id: RandomId) {
        self.lock().commands.remove(&id);
    }

    pub(super) fn cancel_commands(&self) {
        let commands: Vec<_> = self.lock().commands.values().cloned().collect();
        for command in commands {
            command.cancel();
        }
    }

    /// Whether the client has not sent the token yet.
    pub(super) fn is_unauthenticated(&self) -> bool {
        !self.is_authenticated.load(Ordering::Acquire) && !self.hangup.is_cancelled()
    }

    /// Hangs up on the client.
    pub(super) fn cut(&self) {
        self.hangup.cancel();
    }

    /// Ends all sessions and commands of the connection, without waiting for their end.
    fn close(&self) {
        let (sessions, commands) = {
            let mut owned = self.lock();
            owned.is_closed = true;
            (std::mem::take(&mut owned.sessions), std::mem::take(&mut owned.commands))
        };
        for command in commands.values() {
            command.cancel();
        }
        drop(sessions);
        self.closed.cancel();
    }

    fn lock(&self) -> MutexGuard<'_, OwnedByConnection> {
        self.owned_sessions.lock()
    }
}

/// The byte stream of a connection. Dropping it closes the connection.
pub(super) struct ConnectionIo {
    stream: UnixStream,
    /// Bytes that were read from the stream before HTTP/2 started.
    early_bytes: io::Cursor<Vec<u8>>,
    connection: Arc<ClientConnection>,
    token_timer: Pin<Box<Sleep>>,
    /// Ready when the sidecar hangs up.
    hangup: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionIo {
    pub(super) fn new(
        stream: UnixStream,
        early: Vec<u8>,
        sessions: usize,
        token_timeout: Duration,
        cut: CancellationToken,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            stream,
            early_bytes: io::Cursor::new(early),
            connection: Arc::new(ClientConnection::new(sessions, cut.clone())),
            token_timer: Box::pin(tokio::time::sleep(token_timeout)),
            hangup: Box::pin(cut.cancelled_owned()),
            _permit: permit,
        }
    }

    pub(super) fn connection(&self) -> &Arc<ClientConnection> {
        &self.connection
    }

    /// Resolves when the connection is closed.
    pub(super) fn closed(&self) -> WaitForCancellationFutureOwned {
        self.connection.closed.clone().cancelled_owned()
    }
}

impl Connected for ConnectionIo {
    type ConnectInfo = ConnectionHandle;

    fn connect_info(&self) -> ConnectionHandle {
        ConnectionHandle(Arc::clone(&self.connection))
    }
}

impl Drop for ConnectionIo {
    fn drop(&mut self) {
        self.connection.close();
    }
}

impl AsyncRead for ConnectionIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.hangup.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the sidecar hangs up",
            )));
        }
        if !self.connection.is_authenticated.load(Ordering::Acquire)
            && self.token_timer.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no call with the token")));
        }
        let early = &mut self.early_bytes;
        let unread = early.get_ref().get(usize::try_from(early.position()).unwrap_or(usize::MAX)..);
        if let Some(unread) = unread
            && !unread.is_empty()
        {
            let count = unread.len().min(buffer.remaining());
            buffer.put_slice(&unread[..count]);
            early.set_position(early.position() + count as u64);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ConnectionIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The name of a session or a command. It is random, so it reveals nothing about other sessions and commands.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RandomId([u8; 16]);

impl RandomId {
    /// # Errors
    /// `failed`, if the kernel provides no random bytes.
    pub(super) fn random() -> Result<Self, Status> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| RefusalCode::Failed.status(format!("no randomness: {error}")))?;
        Ok(Self(bytes))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl fmt::Display for RandomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for RandomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_one_owner_share_their_tunnels() {
        let connection = ClientConnection::new(16, CancellationToken::new());
        let first = connection.share_of("one");
        let second = connection.share_of("one");
        assert!(first.is_same(&second));
        assert!(!first.is_same(&connection.share_of("two")));
        // Sessions without an owner's name share no permits.
        assert!(!connection.share_of("").is_same(&connection.share_of("")));
        // The connection keeps a share only as long as a session has it.
        connection.share_of("one");
        assert_eq!(connection.lock().shares.len(), 1);
        drop((first, second));
        connection.share_of("three");
        assert_eq!(connection.lock().shares.len(), 1);
    }
}
