//! Reads one response of a model, from the request to its last piece.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::{FutureExt, StreamExt};
use portcullis_types::{CancellationToken, ToolEvent, error_chain};
use serde::{Deserialize, Serialize};

use super::{
    AgentEnd, AgentEvent, ArgumentsPiece, AssembledCall, Delta, DeltaStream, ModelRequest, OfferedTool,
    Provider, ProviderError, ProviderErrorKind, StopReason, ToolCallAccumulator, Usage,
    call_ids::CallIds,
    embedder::{GuardedEmitter, panicked},
};

/// The maximum length of a response's text: 8 MiB. Without the limit, a model that never ends could fill the
/// memory.
pub const MAX_RESPONSE_BYTES: usize = 8 << 20;

/// A complete response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CompleteResponse {
    pub(super) text: String,
    pub(super) calls: Vec<AssembledCall>,
    pub(super) stop: StopReason,
    pub(super) usage: Option<Usage>,
}

/// A response that broke off. None of its calls may run.
#[derive(Debug)]
pub(super) struct BrokenResponse {
    /// The text received so far.
    pub(super) text: String,
    pub(super) end: AgentEnd,
    pub(super) usage: Option<Usage>,
}

/// Sends a request, reports the response's pieces as they arrive, and returns the complete response. Adds the ids
/// of the response's calls to `ids`.
pub(super) async fn ask(
    provider: &dyn Provider,
    request: ModelRequest,
    offers: &[OfferedTool],
    ids: &mut CallIds,
    idle_timeout: Duration,
    emitter: &GuardedEmitter,
) -> Result<CompleteResponse, BrokenResponse> {
    // Clone the token: the provider takes the request, and each piece needs the token.
    let cancel = request.cancel.clone();
    let mut partial = PartialResponse { text: String::new(), usage: None, has_begun: false };
    let mut stream = open_stream(provider, request, idle_timeout, &mut partial).await?;
    let mut calls = ToolCallAccumulator::with_taken_ids(std::mem::take(ids));
    loop {
        let delta = next_delta(&mut stream, &cancel, idle_timeout, &mut partial).await?;
        partial.has_begun = true;
        match delta {
            Delta::Text(delta) => {
                partial.add(&delta)?;
                emitter.report(AgentEvent::TextDelta { delta }).await;
            }
            Delta::Thinking(delta) => emitter.report(AgentEvent::ThinkingDelta { delta }).await,
            Delta::ToolCall(delta) => match calls.push(delta) {
                Ok(None) => {}
                Ok(Some(piece)) => {
                    let ArgumentsPiece { call_id, tool, delta } = piece;
                    emitter
                        .report(AgentEvent::Tool(ToolEvent::ArgumentsDelta { call_id, tool, delta }))
                        .await;
                }
                Err(error) => return Err(partial.malformed(error.to_string())),
            },
            Delta::Usage(usage) => partial.usage = Some(usage),
            Delta::End(stop) => {
                // The response is complete, so a panic in the stream's destructor must not lose it.
                drop_stream(stream);
                let (calls, taken_ids) = calls.finish_with_ids(&stop, offers);
                *ids = taken_ids;
                return Ok(CompleteResponse { text: partial.text, calls, stop, usage: partial.usage });
            }
        }
    }
}

/// Sends the request and waits for the response's stream.
async fn open_stream(
    provider: &dyn Provider,
    request: ModelRequest,
    idle_timeout: Duration,
    partial: &mut PartialResponse,
) -> Result<DeltaStream, BrokenResponse> {
    let cancel = request.cancel.clone();
    let opening = async { provider.stream(request).await };
    wait_for_provider(opening, &cancel, idle_timeout, partial).await?.map_err(|error| partial.failed(&error))
}

/// Waits for the next piece of a response that has not ended.
async fn next_delta(
    stream: &mut DeltaStream,
    cancel: &CancellationToken,
    idle_timeout: Duration,
    partial: &mut PartialResponse,
) -> Result<Delta, BrokenResponse> {
    match wait_for_provider(stream.next(), cancel, idle_timeout, partial).await? {
        Some(Ok(delta)) => Ok(delta),
        Some(Err(error)) => Err(partial.failed(&error)),
        None => Err(partial.incomplete("the answer broke off before its end")),
    }
}

/// Waits until a provider has answered, panicked or been silent for too long, or until the run is cancelled.
async fn wait_for_provider<T>(
    work: impl Future<Output = T>,
    cancel: &CancellationToken,
    idle_timeout: Duration,
    partial: &mut PartialResponse,
) -> Result<T, BrokenResponse> {
    let answered = tokio::select! {
        // `biased`: a cancelled run sends no request and takes no further piece, even if one is ready.
        biased;
        () = cancel.cancelled() => return Err(partial.broken_response(AgentEnd::Cancelled)),
        answered = tokio::time::timeout(idle_timeout, AssertUnwindSafe(work).catch_unwind()) => answered,
    };
    match answered {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(panic)) => Err(partial.panicked(&*panic)),
        Err(_elapsed) => Err(partial.silence_timeout(idle_timeout)),
    }
}

/// Drops a provider's stream. A panic in its destructor is the provider's fault and must not end the run.
fn drop_stream(stream: DeltaStream) {
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| drop(stream)));
}

struct PartialResponse {
    text: String,
    usage: Option<Usage>,
    /// Whether any piece of the response has arrived.
    has_begun: bool,
}

impl PartialResponse {
    /// Adds a piece of text, unless the response would get too long.
    fn add(&mut self, delta: &str) -> Result<(), BrokenResponse> {
        if self.text.len() + delta.len() > MAX_RESPONSE_BYTES {
            return Err(self.malformed(format!("the answer is longer than {MAX_RESPONSE_BYTES} bytes")));
        }
        self.text.push_str(delta);
        Ok(())
    }

    fn broken_response(&mut self, end: AgentEnd) -> BrokenResponse {
        BrokenResponse { text: std::mem::take(&mut self.text), end, usage: self.usage }
    }

    fn failed(&mut self, error: &ProviderError) -> BrokenResponse {
        // A transport error after the first piece leaves the response incomplete.
        let kind = match error.kind() {
            ProviderErrorKind::Transport if self.has_begun => ProviderErrorKind::Incomplete,
            kind => kind,
        };
        if kind == ProviderErrorKind::Cancelled {
            return self.broken_response(AgentEnd::Cancelled);
        }
        self.broken_response(AgentEnd::Provider { kind, message: error_chain(error) })
    }

    fn incomplete(&mut self, message: impl Into<String>) -> BrokenResponse {
        self.broken_response(AgentEnd::Provider {
            kind: ProviderErrorKind::Incomplete,
            message: message.into(),
        })
    }

    fn malformed(&mut self, message: String) -> BrokenResponse {
        self.broken_response(AgentEnd::Provider { kind: ProviderErrorKind::Malformed, message })
    }

    fn silence_timeout(&mut self, idle_timeout: Duration) -> BrokenResponse {
        self.incomplete(format!("the model sent nothing for {} s", idle_timeout.as_secs()))
    }

    fn panicked(&mut self, panic: &(dyn std::any::Any + Send)) -> BrokenResponse {
        self.broken_response(AgentEnd::Internal { message: panicked("provider", panic).to_string() })
    }
}
