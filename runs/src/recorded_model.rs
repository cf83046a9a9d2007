//! [`RecordedModel`]: wraps a provider, and writes an audit row for each of its requests.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use futures_util::Stream;
use portcullis_agent::{
    Delta, DeltaStream, ModelRequest, Provider, ProviderError, ProviderErrorKind, StopReason, Usage,
};
use portcullis_tools::{
    Caller, ToolRegistry,
    audit::{AuditError, ModelEnd, Outcome},
};
use portcullis_types::{ToolErrorKind, async_trait};

/// Wraps a provider. Each request gets an audit row when its answer has ended, failed or was abandoned. An
/// answer whose row cannot be written is withheld.
pub struct RecordedModel {
    inner: Arc<dyn Provider>,
    log: ModelLog,
}

/// The identity of the model in rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelIdentity {
    /// The model's name, as the provider knows it.
    pub name: String,
    /// The scheme, host and port of the provider. `None` for a model in this process.
    pub address: Option<String>,
}

/// The audit log of model requests, with the caller and the model of each row.
#[derive(Clone)]
struct ModelLog {
    registry: Arc<ToolRegistry>,
    caller: Caller,
    model: ModelIdentity,
}

impl fmt::Debug for RecordedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedModel").field("model", &self.log.model).finish_non_exhaustive()
    }
}

impl RecordedModel {
    /// Records the requests to this model in the run of this caller.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Provider>,
        registry: Arc<ToolRegistry>,
        caller: Caller,
        model: ModelIdentity,
    ) -> Self {
        Self { inner, log: ModelLog { registry, caller, model } }
    }
}

impl ModelLog {
    fn write(
        &self,
        request: &InFlightRequest,
        outcome: Outcome,
        code: Option<&str>,
    ) -> Result<(), AuditError> {
        self.registry.record_model(
            &self.caller,
            ModelEnd {
                model: self.model.name.as_str().into(),
                address: self.model.address.as_deref().map(Into::into),
                outcome,
                code: code.map(Into::into),
                duration: request.started_at.elapsed(),
                input_tokens: request.usage.map(|usage| usage.input_tokens),
                output_tokens: request.usage.map(|usage| usage.output_tokens),
            },
        )
    }
}

/// A request in flight.
struct InFlightRequest {
    started_at: Instant,
    usage: Option<Usage>,
}

#[async_trait]
impl Provider for RecordedModel {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        let mut recorder = RequestRecorder {
            log: self.log.clone(),
            request: InFlightRequest { started_at: Instant::now(), usage: None },
            is_recorded: false,
        };
        match self.inner.stream(request).await {
            Ok(answer) => Ok(Box::pin(RecordedResponse { answer, recorder })),
            Err(error) => Err(recorder.fail(error)),
        }
    }
}

/// Writes the row of a request, at the latest when it is dropped.
struct RequestRecorder {
    log: ModelLog,
    request: InFlightRequest,
    is_recorded: bool,
}

impl RequestRecorder {
    fn end(&mut self, stop: StopReason) -> Result<Delta, ProviderError> {
        // Set this before the write, so that a failed write is not repeated on drop.
        self.is_recorded = true;
        let word = match &stop {
            StopReason::Stop => "stop",
            StopReason::ToolCalls => "tool_calls",
            StopReason::Length => "length",
            StopReason::ContentFilter => "content_filter",
            StopReason::Other(other) => other,
        };
        match self.log.write(&self.request, Outcome::Ok, Some(word)) {
            Ok(()) => Ok(Delta::End(stop)),
            Err(error) => Err(unrecorded(error)),
        }
    }

    fn fail(&mut self, error: ProviderError) -> ProviderError {
        self.is_recorded = true;
        let kind = error.kind();
        match self.log.write(&self.request, Outcome::Error(error_kind(kind)), Some(&kind.to_string())) {
            Ok(()) => error,
            Err(error) => unrecorded(error),
        }
    }
}

impl Drop for RequestRecorder {
    fn drop(&mut self) {
        if !self.is_recorded {
            let cancelled = Outcome::Error(ToolErrorKind::Cancelled);
            if let Err(error) = self.log.write(&self.request, cancelled, None) {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "cannot record a request to a model"
                );
            }
        }
    }
}

/// The answer of a recorded request.
struct RecordedResponse {
    answer: DeltaStream,
    recorder: RequestRecorder,
}

impl Stream for RecordedResponse {
    type Item = Result<Delta, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let delta = std::task::ready!(self.answer.as_mut().poll_next(context));
        Poll::Ready(delta.map(|delta| match delta {
            Ok(Delta::End(stop)) => self.recorder.end(stop),
            Ok(Delta::Usage(usage)) => {
                self.recorder.request.usage = Some(usage);
                Ok(Delta::Usage(usage))
            }
            Ok(delta) => Ok(delta),
            Err(error) => Err(self.recorder.fail(error)),
        }))
    }
}

fn unrecorded(error: AuditError) -> ProviderError {
    let message = "the request to the model cannot be recorded, so its answer is withheld";
    ProviderError::new(ProviderErrorKind::Configuration, message).with_source(error)
}

/// Returns the kind of error for the row. The row's code is the provider's own kind.
fn error_kind(kind: ProviderErrorKind) -> ToolErrorKind {
    match kind {
        ProviderErrorKind::Cancelled => ToolErrorKind::Cancelled,
        ProviderErrorKind::RateLimited => ToolErrorKind::RateLimited,
        ProviderErrorKind::Transport | ProviderErrorKind::Server => ToolErrorKind::Unavailable,
        _ => ToolErrorKind::Failed,
    }
}
