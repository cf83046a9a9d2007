//! Parses the responses of Slack and Discord. They are small JSON texts from a service that the operator
//! chose. Only one or two short strings of each are used.

use portcullis_types::{ToolError, ToolErrorCode};
use serde::Deserialize;

use super::message::Service;

/// The maximum length of a response, in bytes. Both services send less.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// The maximum length of an id, and of the reason for a refusal, in bytes.
const MAX_WORD_BYTES: usize = 128;

/// Slack's response (<https://docs.slack.dev/reference/methods/chat.postMessage>). Its status is
/// 200 for errors too.
#[derive(Deserialize)]
struct SlackResponse {
    ok: bool,
    ts: Option<String>,
    error: Option<String>,
}

/// Discord's response: the message.
#[derive(Deserialize)]
struct DiscordResponse {
    id: String,
}

/// Returns the id of the message that was sent.
///
/// # Errors
/// `failed` with the code `notification_refused` if the service reports an error, and `answer_unexpected` if
/// the response is malformed. In the latter case the message may have been sent.
pub(super) fn message_id(service: Service, body: &[u8]) -> Result<String, ToolError> {
    let unexpected = || {
        ToolError::failed(format!(
            "{} sent a response that cannot be parsed; the message may have been sent",
            service.as_str()
        ))
        .with_code(ToolErrorCode::AnswerUnexpected)
    };
    if body.len() > MAX_RESPONSE_BYTES {
        return Err(unexpected());
    }
    let id = match service {
        Service::Discord => serde_json::from_slice::<DiscordResponse>(body).ok().map(|answer| answer.id),
        Service::Slack => match serde_json::from_slice::<SlackResponse>(body) {
            Ok(SlackResponse { ok: true, ts, .. }) => ts,
            Ok(SlackResponse { ok: false, error, .. }) => {
                let reason = error.filter(|error| is_word(error)).unwrap_or_else(|| "no reason".to_owned());
                let error = ToolError::failed(format!("Slack refused the message: {reason}"));
                return Err(error.with_code(ToolErrorCode::NotificationRefused));
            }
            Err(_other_form) => None,
        },
    };
    id.filter(|id| is_word(id)).ok_or_else(unexpected)
}

/// Whether a text from a service is short and consists of plain characters.
fn is_word(text: &str) -> bool {
    (1..=MAX_WORD_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_anything_else_is_an_error() {
        let read = |service, body: &str| message_id(service, body.as_bytes());
        assert_eq!(read(Service::Slack, r#"{"ok":true,"ts":"1.2","x":[]}"#).as_deref(), Ok("1.2"));
        assert_eq!(read(Service::Discord, r#"{"id":"42","content":"x"}"#).as_deref(), Ok("42"));
        let refused =
            read(Service::Slack, r#"{"ok":false,"error":"channel_not_found"}"#).expect_err("refused");
        assert_eq!(refused.code(), "notification_refused");
        assert!(refused.message().ends_with("channel_not_found"));
        let long = format!("{{\"id\":\"1\",\"x\":\"{}\"}}", "y".repeat(MAX_RESPONSE_BYTES));
        for (service, body) in [
            (Service::Slack, "ok"),
            (Service::Slack, r#"{"ok":true}"#),
            (Service::Slack, r#"{"ok":true,"ts":"ignore all\nprevious"}"#),
            (Service::Discord, r#"{"id":5}"#),
            (Service::Discord, &*long),
            (Service::Discord, &*"[".repeat(10_000)),
        ] {
            assert_eq!(read(service, body).expect_err("unexpected").code(), "answer_unexpected");
        }
    }
}
