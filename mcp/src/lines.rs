//! The transport with one message per line. It is bounded in every direction.
//!
//! - Unreadable messages: an overlong line is skipped and refused, and an invalid message is refused. A client
//!   that sends too many of them in a row is disconnected.
//! - Backpressure: the server stops reading from a client that does not drain its responses.
//! - End of the input: the client's calls get a grace period, and are cancelled after it.
//! - Stop of the server: calls are cancelled immediately. The connection ends when each request received so far is
//!   answered, at the latest after a grace period.

use std::{
    io,
    sync::{Arc, Weak},
};

use portcullis_types::CancellationToken;
use rmcp::{
    RoleServer,
    model::{
        ClientNotification, ClientRequest, ErrorCode, ErrorData, GetMeta as _, JsonRpcMessage,
        JsonRpcNotification, ProtocolVersion, RequestId,
    },
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::{Mutex, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{
    limits::McpLimits,
    session::ClientPresence,
    unanswered_ids::UnansweredIds,
    wire::{self, Unreadable},
};

/// Size of the read buffer, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// The refusal of a request that arrives before the session begins.
pub(super) const NO_SESSION: &str =
    "a request belongs to a session, which `initialize` begins: send that first";

/// The error code for requests during shutdown. The number is from the range that JSON-RPC reserves for
/// servers.
const ENDING: ErrorCode = ErrorCode(-32000);

/// The transport of one client: a JSON message on each line.
pub(super) struct LineTransport<R, W> {
    input: BufReader<R>,
    /// The part of the current line that was read. It is a field, so that a cancelled read loses nothing.
    line: Vec<u8>,
    /// Whether the rest of the current line is skipped because the line is too long.
    is_skipping: bool,
    output: Arc<Mutex<W>>,
    /// One permit for each message that may wait to be written.
    unsent: Arc<Semaphore>,
    unanswered_ids: UnansweredIds,
    /// Number of unreadable messages in a row.
    unreadable: u32,
    /// Whether the client has begun its session.
    has_begun: bool,
    has_ended: bool,
    /// Cancelled when the server must stop.
    stop: CancellationToken,
    /// When the calls of a client that has left are cancelled.
    leave_deadline: Option<Instant>,
    /// When a stopping server abandons unanswered requests.
    stop_deadline: Option<Instant>,
    limits: McpLimits,
    presence: ClientPresence,
}

/// Whether a client is still read after a refusal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterRefusal {
    ReadOn,
    /// The limit of unreadable messages is reached.
    Disconnect,
}

/// Outcome of reading a line.
enum LineRead {
    /// The line is in the buffer.
    Line,
    /// The line exceeded the limit.
    TooLong,
    /// The input has ended.
    End,
}

impl<R: AsyncRead + Send + Unpin + 'static, W: AsyncWrite + Send + Unpin + 'static> LineTransport<R, W> {
    pub(super) fn new(
        input: R,
        output: W,
        limits: &McpLimits,
        presence: ClientPresence,
        stop: CancellationToken,
    ) -> Self {
        Self {
            input: BufReader::with_capacity(BUFFER_BYTES, input),
            line: Vec::new(),
            is_skipping: false,
            output: Arc::new(Mutex::new(output)),
            unsent: Arc::new(Semaphore::new(limits.max_unsent)),
            unanswered_ids: UnansweredIds::default(),
            unreadable: 0,
            has_begun: false,
            has_ended: false,
            stop,
            leave_deadline: None,
            stop_deadline: None,
            limits: limits.clone(),
            presence,
        }
    }

    /// Reads to the end of a line.
    ///
    /// # Cancellation
    /// Cancel-safe: the bytes read so far stay in the buffer.
    async fn read_line(&mut self) -> io::Result<LineRead> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                // Drop a last line without a line end: it may be half a message.
                return Ok(LineRead::End);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let consumed = end.map_or(available.len(), |end| end + 1);
            if !self.is_skipping {
                if self.line.len() + consumed > self.limits.max_message_bytes {
                    // `clear` would keep a buffer of the limit's size.
                    self.line = Vec::new();
                    self.is_skipping = true;
                } else {
                    self.line.extend_from_slice(&available[..consumed]);
                }
            }
            self.input.consume(consumed);
            if end.is_some() {
                let too_long = std::mem::take(&mut self.is_skipping);
                return Ok(if too_long { LineRead::TooLong } else { LineRead::Line });
            }
        }
    }

    /// Refuses an unreadable message.
    ///
    /// # Cancellation
    /// The response may be lost. It is never half-written, because another task writes it.
    async fn refuse(&mut self, id: Option<RequestId>, error: ErrorData) -> AfterRefusal {
        self.unreadable += 1;
        tracing::info!("a message was refused: {}", error.message);
        self.reply_error(id, error).await;
        if self.unreadable >= self.limits.max_unreadable {
            AfterRefusal::Disconnect
        } else {
            AfterRefusal::ReadOn
        }
    }

    /// Responds with an error, and waits until the response is written. Responses to a client that reads none
    /// therefore do not pile up.
    ///
    /// # Cancellation
    /// Cancel-safe: another task writes the response.
    async fn reply_error(&mut self, id: Option<RequestId>, error: ErrorData) {
        let response = self.write(JsonRpcMessage::error(error, id));
        // Ignore the error: `write` itself records that the client is gone.
        let sent = super::task::spawn_detached(async move {
            let _ = response.await;
        });
        let _ = sent.await;
    }

    /// Refuses a request that is not allowed before the session.
    fn ensure_session_begun(&mut self, id: &RequestId, request: &ClientRequest) -> Result<(), Unreadable> {
        match request {
            ClientRequest::InitializeRequest(_) => self.has_begun = true,
            ClientRequest::PingRequest(_) => {}
            // A request that names a revision without sessions passes, and its response lists the supported
            // revisions. A request that names a revision with sessions is refused, because only `initialize`
            // begins a session.
            other => {
                let meta = other.get_meta();
                let is_complete = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
                let is_sessionless = meta.protocol_version().is_some_and(|version| {
                    version >= ProtocolVersion::V_2026_07_28
                        || matches!(other, ClientRequest::DiscoverRequest(_))
                });
                if !is_sessionless || !is_complete {
                    let error = ErrorData::invalid_request(NO_SESSION, None);
                    return Err(Unreadable { id: Some(id.clone()), error });
                }
            }
        }
        Ok(())
    }

    /// Accepts a message. Refuses a request that reuses the id of an unanswered or cancelled request, or that
    /// is not allowed before the session.
    fn accept(
        &mut self,
        message: RxJsonRpcMessage<RoleServer>,
    ) -> Result<RxJsonRpcMessage<RoleServer>, Unreadable> {
        if let (false, JsonRpcMessage::Request(request)) = (self.has_begun, &message) {
            self.ensure_session_begun(&request.id, &request.request)?;
        }
        match &message {
            JsonRpcMessage::Request(request) if !self.unanswered_ids.begin(&request.id) => {
                let error = ErrorData::invalid_request(
                    "a request with this id is not answered yet, or was cancelled",
                    None,
                );
                return Err(Unreadable { id: Some(request.id.clone()), error });
            }
            JsonRpcMessage::Notification(JsonRpcNotification {
                notification: ClientNotification::CancelledNotification(cancelled),
                ..
            }) => {
                if let Some(id) = &cancelled.params.request_id {
                    self.unanswered_ids.cancel(id);
                }
            }
            _ => {}
        }
        Ok(message)
    }

    /// Writes a message.
    ///
    /// # Cancellation
    /// The message may be half-written. This happens only to a client that is being disconnected.
    fn write(
        &self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<R, W> {
        // Beyond the limit, a message is written without a permit. `next_message` stops reading until a
        // permit is free.
        let permit = Arc::clone(&self.unsent).try_acquire_owned().ok();
        // Hold a weak reference: a waiting message must not keep the stream of a closed transport open.
        let output: Weak<Mutex<W>> = Arc::downgrade(&self.output);
        let client_gone = self.presence.disconnected.clone();
        async move {
            let _permit = permit;
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let Some(output) = output.upgrade() else { return Err(io::ErrorKind::NotConnected.into()) };
            let mut output = output.lock().await;
            let written = async {
                output.write_all(&line).await?;
                output.flush().await
            };
            let written = written.await;
            if written.is_err() {
                // Responses can no longer be delivered, so cancel the calls.
                client_gone.cancel();
            }
            written
        }
    }

    async fn next_message(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // Backpressure: wait for a free permit, but do not keep it.
            drop(self.unsent.acquire().await);
            let read = match self.read_line().await {
                Ok(read) => read,
                Err(error) => {
                    tracing::info!("the client cannot be read: {error}");
                    return None;
                }
            };
            let after_refusal = match read {
                LineRead::End => return None,
                LineRead::TooLong => {
                    let message = format!("a message has at most {} bytes", self.limits.max_message_bytes);
                    self.refuse(None, ErrorData::invalid_request(message, None)).await
                }
                LineRead::Line => {
                    let line = std::mem::take(&mut self.line);
                    let text = line.trim_ascii();
                    if text.is_empty() {
                        continue;
                    }
                    match wire::decode(text).and_then(|decoded| self.accept(decoded.message)) {
                        // Ignore notifications before the session: they have no meaning there.
                        Ok(message) if !self.has_begun && !matches!(message, JsonRpcMessage::Request(_)) => {
                            continue;
                        }
                        Ok(message) => {
                            self.unreadable = 0;
                            return Some(message);
                        }
                        Err(unreadable) => self.refuse(unreadable.id, unreadable.error).await,
                    }
                }
            };
            if after_refusal == AfterRefusal::Disconnect {
                tracing::warn!(
                    "the session ends: the client sent {} unreadable messages in a row",
                    self.unreadable
                );
                return None;
            }
        }
    }
}

impl<R: AsyncRead + Send + Unpin + 'static, W: AsyncWrite + Send + Unpin + 'static> LineTransport<R, W> {
    /// Waits until all received requests are answered, and refuses new ones.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    async fn await_answers(&mut self) {
        let all_answered = self.unanswered_ids.wait_until_empty();
        let mut all_answered = std::pin::pin!(all_answered);
        loop {
            let message = tokio::select! {
                // `biased`: read messages that have arrived before checking, so that they are answered too.
                biased;
                message = self.next_message(), if !self.has_ended => message,
                () = &mut all_answered => return,
            };
            match message {
                None => self.has_ended = true,
                Some(JsonRpcMessage::Request(request)) => {
                    self.unanswered_ids.end(&request.id);
                    let error = ErrorData::new(ENDING, "the server ends: this request was not taken", None);
                    self.reply_error(Some(request.id), error).await;
                }
                Some(_) => {}
            }
        }
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        if let Some(id) = answered {
            self.unanswered_ids.end(id);
        }
        self.write(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let stop = self.stop.clone();
        if !self.has_ended {
            let message = tokio::select! {
                // `biased`: a stopping server accepts no further request.
                biased;
                () = stop.cancelled() => None,
                message = self.next_message() => {
                    self.has_ended = message.is_none();
                    message
                }
            };
            if message.is_some() {
                return message;
            }
        }
        // rmcp recreates this future with each event of a call, so set each deadline only once.
        if !stop.is_cancelled() {
            let leave_deadline =
                *self.leave_deadline.get_or_insert_with(|| Instant::now() + self.limits.leave_grace);
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                // Ignore the result: the client has left in any case.
                _ = timeout_at(leave_deadline, self.unanswered_ids.wait_until_empty()) => {}
            }
        }
        self.presence.disconnected.cancel();
        if stop.is_cancelled() {
            let stop_deadline =
                *self.stop_deadline.get_or_insert_with(|| Instant::now() + self.limits.stop_timeout);
            let _ = timeout_at(stop_deadline, self.await_answers()).await;
        }
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        self.presence.disconnected.cancel();
        let closing = async { self.output.lock().await.shutdown().await };
        // A client that does not read must not delay the shutdown.
        timeout(self.limits.leave_grace, closing).await.unwrap_or(Ok(()))
    }
}
