//! Turns the failures of a request into errors for the operator, without the key.

use std::{
    error::Error,
    time::{Duration, SystemTime},
};

use http::header::CONTENT_TYPE;

use super::{
    ApiKey, ProviderKind,
    connection::{Response, next_chunk},
    event_splitter::EventFault,
    retry::{FailedRequest, RetryAdvice, read_retry_after},
    wire::{self, ReadError, ReportedError},
};
use crate::{ProviderError, ProviderErrorKind, StopReason};

/// The maximum length of a refusal's body that is read, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// How long to wait for a refusal's body. The status alone is enough for an error.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of an unknown stop reason, in bytes. A stop reason is usually one word. Without a
/// limit, a server could put a whole event into the run's final message.
const MAX_REASON_BYTES: usize = 200;

/// The provider and the key of a request. Errors name the provider and hide the key.
#[derive(Debug, Clone)]
pub(super) struct FailureContext {
    /// The provider's protocol.
    pub(super) kind: ProviderKind,
    /// The key that was sent.
    pub(super) key: Option<ApiKey>,
}

impl FailureContext {
    /// Checks that the response is a success in the expected media type. Returns any other response as a
    /// failure.
    pub(super) async fn check_response(&self, response: Response) -> Result<Response, FailedRequest> {
        let status = response.status();
        let expected = wire::media_type(self.kind);
        if let Some(kind) = wire::kind_of_status(status.as_u16()) {
            let retry = match kind {
                ProviderErrorKind::RateLimited | ProviderErrorKind::Server => {
                    read_retry_after(response.headers(), SystemTime::now())
                }
                _ => RetryAdvice::Never,
            };
            let reported = if status.is_redirection() {
                "the provider redirects to another address, and redirects are not followed; set the base URL to that address"
                    .to_owned()
            } else {
                self.reported_text(&ReportedError::from_body(&read_body(response).await))
            };
            let error =
                self.error(kind, &format!("answered {status}: {reported}")).with_status(status.as_u16());
            return Err(FailedRequest { error, retry });
        }
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case(expected) {
            return Ok(response);
        }
        let actual_type = wire::printable_excerpt(&self.without_key(media_type));
        let reported = self.reported_text(&ReportedError::from_body(&read_body(response).await));
        let problem = format!("answered {actual_type:?} instead of {expected}: {reported}");
        Err(FailedRequest::permanent(self.error(ProviderErrorKind::Malformed, &problem)))
    }

    /// Returns the failure of a broken connection.
    pub(super) fn connection_failure(
        &self,
        problem: &str,
        error: impl Error + Send + Sync + 'static,
    ) -> FailedRequest {
        let error = self.error(ProviderErrorKind::Transport, problem).with_source(error);
        FailedRequest::retryable(error)
    }

    /// Returns the failure of a provider that was silent for too long. It is not retried, because a retry
    /// would most likely wait as long.
    pub(super) fn idle_timeout_failure(&self, limit: Duration) -> FailedRequest {
        let problem = format!("sent nothing for {} s", limit.as_secs_f64());
        FailedRequest::permanent(self.error(ProviderErrorKind::Transport, &problem))
    }

    /// Returns the failure of a cancelled request.
    pub(super) fn cancelled_failure(&self) -> FailedRequest {
        FailedRequest::permanent(
            self.error(ProviderErrorKind::Cancelled, "got a request that was then cancelled"),
        )
    }

    /// Returns the failure of a response that broke off.
    pub(super) fn cut_off_failure(&self) -> FailedRequest {
        let problem = "ended the response before its end marker";
        FailedRequest::retryable(self.error(ProviderErrorKind::Incomplete, problem))
    }

    /// Returns the failure of a response that cannot be decoded.
    pub(super) fn decode_failure(&self, fault: ReadError) -> FailedRequest {
        let malformed =
            |problem: &str| FailedRequest::permanent(self.error(ProviderErrorKind::Malformed, problem));
        match fault {
            ReadError::Reported(reported) => {
                let problem = format!("ended the response: {}", self.reported_text(&reported));
                let error = self.error(reported.kind, &problem);
                match reported.kind {
                    ProviderErrorKind::Server | ProviderErrorKind::RateLimited => {
                        FailedRequest::retryable(error)
                    }
                    _ => FailedRequest::permanent(error),
                }
            }
            ReadError::NoStopReason => FailedRequest::permanent(
                self.error(ProviderErrorKind::Incomplete, "ended the response without a stop reason"),
            ),
            ReadError::TooLarge | ReadError::Event(EventFault::TooLarge) => {
                malformed("sent a response that is larger than the limit")
            }
            ReadError::Event(EventFault::NotText) => malformed("sent a response that is not UTF-8"),
            // Report only the position: the JSON error quotes the text, which may be anything.
            ReadError::Json(error) => {
                let (line, column) = (error.line(), error.column());
                malformed(&format!(
                    "sent an event that does not match its protocol, at line {line}, column {column} of the event"
                ))
            }
        }
    }

    /// Removes the key from an unknown stop reason, then shortens the reason. The other order could leave
    /// half a key at the cut.
    pub(super) fn clean_stop_reason(&self, stop: StopReason) -> StopReason {
        let StopReason::Other(reason) = stop else { return stop };
        let reason = self.without_key(&reason);
        StopReason::Other(reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].to_owned())
    }

    fn error(&self, kind: ProviderErrorKind, problem: &str) -> ProviderError {
        ProviderError::new(kind, self.without_key(&format!("{} {problem}", self.kind)))
    }

    fn reported_text(&self, reported: &ReportedError) -> String {
        wire::printable_excerpt(&self.without_key(&reported.message))
    }

    fn without_key(&self, text: &str) -> String {
        match &self.key {
            Some(key) => key.redact(text),
            None => text.to_owned(),
        }
    }
}

/// Reads the start of a body.
async fn read_body(mut response: Response) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = next_chunk(&mut response).await {
            bytes.extend_from_slice(&chunk);
            if bytes.len() >= MAX_BODY_BYTES {
                break;
            }
        }
    };
    // Ignore the timeout: a partial body is enough.
    let _ = tokio::time::timeout(BODY_TIMEOUT, read).await;
    bytes.truncate(MAX_BODY_BYTES);
    String::from_utf8_lossy(&bytes).into_owned()
}
