//! The transport of one message a line, bounded in every direction.
//!
//! A line that is too long is skipped and answered, one that is no message is answered, and a client that sends
//! nothing but those is left. A client that does not read its answers is not read either. At the end of its input
//! its calls have a moment to end; then they are cancelled.

use std::{
    io,
    sync::{Arc, Weak},
};

use rmcp::{
    RoleServer,
    model::{ClientNotification, ErrorData, JsonRpcMessage, JsonRpcNotification, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::{Mutex, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{
    in_flight::InFlight,
    limits::McpLimits,
    session::Presence,
    wire::{self, Unreadable},
};

/// How much is read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// A transport of one message a line.
pub(super) struct Lines<R, W> {
    input: BufReader<R>,
    /// What there is of the current line. It outlives a read that is given up half-way.
    line: Vec<u8>,
    /// Whether the rest of the current line is skipped: it was too long.
    is_skipping: bool,
    output: Arc<Mutex<W>>,
    /// A permit for each message that may wait to be written.
    unsent: Arc<Semaphore>,
    in_flight: InFlight,
    /// How many unreadable messages came in a row.
    unreadable: u32,
    has_ended: bool,
    /// When the calls of a client that has left are cancelled.
    leaves: Option<Instant>,
    limits: McpLimits,
    presence: Presence,
}

/// What came of reading a line.
enum Read {
    /// It is in the buffer.
    Line,
    /// It was longer than may be.
    TooLong,
    /// There is nothing more.
    End,
}

impl<R: AsyncRead + Send + Unpin + 'static, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    pub(super) fn new(input: R, output: W, limits: &McpLimits, presence: Presence) -> Self {
        Self {
            input: BufReader::with_capacity(BUFFER_BYTES, input),
            line: Vec::new(),
            is_skipping: false,
            output: Arc::new(Mutex::new(output)),
            unsent: Arc::new(Semaphore::new(limits.unsent)),
            in_flight: InFlight::default(),
            unreadable: 0,
            has_ended: false,
            leaves: None,
            limits: limits.clone(),
            presence,
        }
    }

    /// Reads up to the end of a line.
    ///
    /// # Cancellation
    /// Safe: what was read stays in the buffer.
    async fn read_line(&mut self) -> io::Result<Read> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                // A line without its end is half a message: it counts for none.
                return Ok(Read::End);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            if !self.is_skipping {
                if self.line.len() + taken > self.limits.message_bytes {
                    self.line = Vec::new();
                    self.is_skipping = true;
                } else {
                    self.line.extend_from_slice(&available[..taken]);
                }
            }
            self.input.consume(taken);
            if end.is_some() {
                let too_long = std::mem::take(&mut self.is_skipping);
                return Ok(if too_long { Read::TooLong } else { Read::Line });
            }
        }
    }

    /// Answers what is no message.
    ///
    /// # Cancellation
    /// The answer may be lost; it never stays half-written, since it is written elsewhere.
    async fn refuse(&mut self, id: Option<RequestId>, error: ErrorData) -> Result<(), ()> {
        self.unreadable += 1;
        tracing::info!("a message was not taken: {}", error.message);
        let answer = self.write(JsonRpcMessage::error(error, id));
        let sent = super::task::detached(async move {
            let _ = answer.await;
        });
        // Answers do not pile up for a client that reads none.
        let _ = sent.await;
        if self.unreadable >= self.limits.unreadable { Err(()) } else { Ok(()) }
    }

    /// Takes a message, unless it is a request whose answer could not be told from another's.
    fn take(
        &mut self,
        message: RxJsonRpcMessage<RoleServer>,
    ) -> Result<RxJsonRpcMessage<RoleServer>, Unreadable> {
        match &message {
            JsonRpcMessage::Request(request) if !self.in_flight.begin(&request.id) => {
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
                    self.in_flight.cancel(id);
                }
            }
            _ => {}
        }
        Ok(message)
    }

    /// Writes a message.
    ///
    /// # Cancellation
    /// It may be written by half; only a client that is left is treated so.
    fn write(
        &self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<R, W> {
        // Over the limit nothing is refused, but nothing more is read until what is waiting was written.
        let place = Arc::clone(&self.unsent).try_acquire_owned().ok();
        let output: Weak<Mutex<W>> = Arc::downgrade(&self.output);
        let gone = self.presence.gone.clone();
        async move {
            let _place = place;
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
                // Nobody reads what calls answer.
                gone.cancel();
            }
            written
        }
    }

    async fn next(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // Whoever does not read is not read.
            drop(self.unsent.acquire().await);
            let read = match self.read_line().await {
                Ok(read) => read,
                Err(error) => {
                    tracing::info!("the client cannot be read: {error}");
                    return None;
                }
            };
            let refused = match read {
                Read::End => return None,
                Read::TooLong => {
                    let message = format!("a message has at most {} bytes", self.limits.message_bytes);
                    self.refuse(None, ErrorData::invalid_request(message, None)).await
                }
                Read::Line => {
                    let line = std::mem::take(&mut self.line);
                    let text = line.trim_ascii();
                    if text.is_empty() {
                        continue;
                    }
                    match wire::decode(text).and_then(|decoded| self.take(decoded.message)) {
                        Ok(message) => {
                            self.unreadable = 0;
                            return Some(message);
                        }
                        Err(unreadable) => self.refuse(unreadable.id, unreadable.error).await,
                    }
                }
            };
            if refused.is_err() {
                tracing::warn!(
                    "the client is left: it sent {} unreadable messages in a row",
                    self.unreadable
                );
                return None;
            }
        }
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
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
            self.in_flight.end(id);
        }
        self.write(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        if !self.has_ended {
            if let Some(message) = self.next().await {
                return Some(message);
            }
            self.has_ended = true;
            self.leaves = Some(Instant::now() + self.limits.leave);
        }
        // Whether they are answered or not: the client has left. This future is made anew with each event of a
        // call, the moment when it ends is not.
        let _ = timeout_at(self.leaves.unwrap_or_else(Instant::now), self.in_flight.none()).await;
        self.presence.gone.cancel();
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        self.presence.gone.cancel();
        let closing = async { self.output.lock().await.shutdown().await };
        // Whoever does not read keeps nobody.
        timeout(self.limits.leave, closing).await.unwrap_or(Ok(()))
    }
}
