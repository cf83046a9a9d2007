//! Turns the failures of a request into errors for the operator, without the key.

use std::{
    error::Error,
    time::{Duration, SystemTime},
};

use http::header::CONTENT_TYPE;

use super::{
    ApiKey, ProviderKind,
    connection::{Response, chunk},
    frames::FrameFault,
    retry::{FailedRequest, RetryAdvice, asked_to_wait},
    wire::{self, ReadFault, ReportedError},
};
use crate::{ProviderError, ProviderErrorKind, StopReason};

/// Limit of a refusal's body that is read, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// How long to wait for a refusal's body; its status says the most important.
const BODY_WAIT: Duration = Duration::from_secs(10);

/// Limit of an unknown stop reason, in bytes. Usually it is a word. Without a limit a server could put a
/// whole event into the message that a run ends with.
const MAX_REASON_BYTES: usize = 200;

/// The provider and the key of a request: errors name the first and hide the second.
#[derive(Debug, Clone)]
pub(super) struct RequestIdentity {
    /// The provider's protocol.
    pub(super) kind: ProviderKind,
    /// The key that was sent.
    pub(super) key: Option<ApiKey>,
}

impl RequestIdentity {
    /// Checks that the response is an answer in the expected media type. Anything else is a failure.
    pub(super) async fn checked(&self, response: Response) -> Result<Response, FailedRequest> {
        let status = response.status();
        let expected = wire::media_type(self.kind);
        if let Some(kind) = wire::of_status(status.as_u16()) {
            let again = match kind {
                ProviderErrorKind::RateLimited | ProviderErrorKind::Server => {
                    asked_to_wait(response.headers(), SystemTime::now())
                }
                _ => RetryAdvice::Never,
            };
            let reported = if status.is_redirection() {
                "it is elsewhere, and redirects are not followed; the base URL has to name the place"
                    .to_owned()
            } else {
                self.words(&ReportedError::in_body(&text(response).await))
            };
            let error =
                self.error(kind, &format!("answered {status}: {reported}")).with_status(status.as_u16());
            return Err(FailedRequest { error, again });
        }
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case(expected) {
            return Ok(response);
        }
        let got = wire::shown(&self.without_key(media_type));
        let reported = self.words(&ReportedError::in_body(&text(response).await));
        let what = format!("answered {got:?} instead of {expected}: {reported}");
        Err(FailedRequest::last(self.error(ProviderErrorKind::Malformed, &what)))
    }

    /// The connection failed.
    pub(super) fn broken(&self, what: &str, error: impl Error + Send + Sync + 'static) -> FailedRequest {
        let error = self.error(ProviderErrorKind::Transport, what).with_source(error);
        FailedRequest::passing(error)
    }

    /// The provider was silent for too long. A retry would most likely wait as long.
    pub(super) fn silent(&self, limit: Duration) -> FailedRequest {
        let what = format!("sent nothing for {} s", limit.as_secs_f64());
        FailedRequest::last(self.error(ProviderErrorKind::Transport, &what))
    }

    /// The request was cancelled.
    pub(super) fn cancelled(&self) -> FailedRequest {
        FailedRequest::last(
            self.error(ProviderErrorKind::Cancelled, "was asked for an answer that was cancelled"),
        )
    }

    /// The answer stopped before its end.
    pub(super) fn cut_off(&self) -> FailedRequest {
        let what = "broke its answer off: nothing says that it is whole";
        FailedRequest::passing(self.error(ProviderErrorKind::Incomplete, what))
    }

    /// The answer cannot be decoded.
    pub(super) fn unreadable(&self, fault: ReadFault) -> FailedRequest {
        let malformed = |what: &str| FailedRequest::last(self.error(ProviderErrorKind::Malformed, what));
        match fault {
            ReadFault::Reported(reported) => {
                let what = format!("broke its answer off: {}", self.words(&reported));
                let error = self.error(reported.kind, &what);
                match reported.kind {
                    ProviderErrorKind::Server | ProviderErrorKind::RateLimited => {
                        FailedRequest::passing(error)
                    }
                    _ => FailedRequest::last(error),
                }
            }
            ReadFault::NoReason => FailedRequest::last(
                self.error(ProviderErrorKind::Incomplete, "ended its answer without saying that it is whole"),
            ),
            ReadFault::TooLarge | ReadFault::Frame(FrameFault::TooLarge) => {
                malformed("gave an answer that is larger than the limit")
            }
            ReadFault::Frame(FrameFault::NotText) => malformed("gave an answer that is not UTF-8"),
            // Report only the position: the JSON error quotes the text, which may be anything.
            ReadFault::Json(error) => {
                let (line, column) = (error.line(), error.column());
                malformed(&format!(
                    "gave an answer that its protocol does not know, at line {line}, column {column} of a piece"
                ))
            }
        }
    }

    /// Shortens an unknown stop reason and removes the key from it. The key is removed first, since a cut
    /// half of it would not be found.
    pub(super) fn stopped(&self, stop: StopReason) -> StopReason {
        let StopReason::Other(reason) = stop else { return stop };
        let reason = self.without_key(&reason);
        StopReason::Other(reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].to_owned())
    }

    fn error(&self, kind: ProviderErrorKind, what: &str) -> ProviderError {
        ProviderError::new(kind, self.without_key(&format!("{} {what}", self.kind)))
    }

    fn words(&self, reported: &ReportedError) -> String {
        wire::shown(&self.without_key(&reported.message))
    }

    fn without_key(&self, text: &str) -> String {
        match &self.key {
            Some(key) => key.out_of(text),
            None => text.to_owned(),
        }
    }
}

/// Reads the start of a body.
async fn text(mut response: Response) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = chunk(&mut response).await {
            bytes.extend_from_slice(&chunk);
            if bytes.len() >= MAX_BODY_BYTES {
                break;
            }
        }
    };
    // A partial body is enough.
    let _ = tokio::time::timeout(BODY_WAIT, read).await;
    bytes.truncate(MAX_BODY_BYTES);
    String::from_utf8_lossy(&bytes).into_owned()
}
