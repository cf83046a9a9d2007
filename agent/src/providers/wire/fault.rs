//! Reads the errors that providers send in the body of a refusal, or in the middle of a response.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::ProviderErrorKind;

/// The maximum length of a provider's message when shown, in characters.
const MAX_SHOWN: usize = 500;

/// The maximum length of an event's error that is parsed: 64 KiB. A longer error is cut to this length and
/// shown unparsed.
const MAX_READ_BYTES: usize = 64 << 10;

/// An error as the provider describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct ReportedError {
    /// The kind of failure, derived from the provider's words.
    pub(in super::super) kind: ProviderErrorKind,
    /// The provider's raw message. [`printable_excerpt`] makes it safe to show.
    pub(in super::super) message: String,
}

/// The error of an event. All other fields are skipped, whatever their size.
#[derive(Deserialize)]
struct ErrorEvent<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl ReportedError {
    /// Reads the body of a refusal, which may be any text.
    pub(in super::super) fn from_body(body: &str) -> Self {
        serde_json::from_str::<Value>(body)
            .ok()
            .and_then(|value| Self::from_value(&value))
            .unwrap_or_else(|| Self::from_unparsed(body))
    }

    /// Reads the error of an event, or returns `None` if the event has no error.
    pub(super) fn from_event(data: &str) -> Option<Self> {
        // Fast path: few events have an error, and parsing every event twice is costly.
        if !data.trim_start().starts_with('{') || !data.contains("\"error\"") {
            return None;
        }
        let error = serde_json::from_str::<ErrorEvent<'_>>(data).ok()?.error?.get();
        if error.len() > MAX_READ_BYTES {
            return Some(Self::from_unparsed(&error[..error.floor_char_boundary(MAX_READ_BYTES)]));
        }
        let value = serde_json::from_str::<Value>(error).map(|error| json!({ "error": error }));
        Some(
            value
                .ok()
                .and_then(|value| Self::from_value(&value))
                .unwrap_or_else(|| Self::from_unparsed(error)),
        )
    }

    /// Creates an error from text that could not be parsed, with the text as the message.
    fn from_unparsed(text: &str) -> Self {
        Self { kind: ProviderErrorKind::Server, message: text.to_owned() }
    }

    fn from_value(value: &Value) -> Option<Self> {
        // Gemini wraps its error in a list.
        let value = value.get(0).unwrap_or(value);
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let message = match error {
            Value::String(text) => text,
            _ => ["message", "detail"].iter().find_map(|key| error.get(key)?.as_str())?,
        };
        let words = ["type", "code", "status"].iter().filter_map(|key| error.get(key));
        let kind = words.filter_map(kind_of).next().unwrap_or(ProviderErrorKind::Server);
        Some(Self { kind, message: message.to_owned() })
    }
}

/// Maps a provider's word or number to a kind.
fn kind_of(word: &Value) -> Option<ProviderErrorKind> {
    if let Some(status) = word.as_u64() {
        return u16::try_from(status).ok().and_then(kind_of_status);
    }
    Some(match word.as_str()? {
        "authentication_error"
        | "permission_error"
        | "invalid_api_key"
        | "UNAUTHENTICATED"
        | "PERMISSION_DENIED" => ProviderErrorKind::Unauthorized,
        "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" | "RESOURCE_EXHAUSTED" => {
            ProviderErrorKind::RateLimited
        }
        "invalid_request_error" | "request_too_large" | "INVALID_ARGUMENT" | "FAILED_PRECONDITION" => {
            ProviderErrorKind::Rejected
        }
        "not_found_error" | "model_not_found" | "NOT_FOUND" => ProviderErrorKind::Configuration,
        "overloaded_error" | "api_error" | "server_error" | "timeout_error" | "UNAVAILABLE" | "INTERNAL" => {
            ProviderErrorKind::Server
        }
        _ => return None,
    })
}

/// Maps an HTTP status to a kind; `None` for a status that is not a failure.
pub(in super::super) fn kind_of_status(status: u16) -> Option<ProviderErrorKind> {
    match status {
        401 | 403 => Some(ProviderErrorKind::Unauthorized),
        // Redirects are not followed, so the configured address is wrong.
        300..400 | 404 | 405 | 410 => Some(ProviderErrorKind::Configuration),
        429 => Some(ProviderErrorKind::RateLimited),
        408 | 500.. => Some(ProviderErrorKind::Server),
        400..500 => Some(ProviderErrorKind::Rejected),
        _ => None,
    }
}

/// Makes a provider's message safe for a terminal or a log: one line, shortened, without control characters.
/// The caller removes the key first, because half a key at the cut would not be found.
pub(in super::super) fn printable_excerpt(text: &str) -> String {
    let mut excerpt: String =
        text.trim().chars().take(MAX_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.trim().chars().nth(MAX_SHOWN).is_some() {
        excerpt.push('…');
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, kind: ProviderErrorKind, message: &str) {
        let reported = ReportedError::from_body(body);
        assert_eq!((reported.kind, printable_excerpt(&reported.message).as_str()), (kind, message));
    }

    #[test]
    fn the_errors_of_each_provider_are_read() {
        use ProviderErrorKind::{Configuration, RateLimited, Rejected, Server, Unauthorized};
        check(
            r#"{"error":{"message":"wrong key","type":"invalid_request_error","code":"invalid_api_key"}}"#,
            Rejected,
            "wrong key",
        );
        check(r#"{"error":{"message":"m","type":null,"code":"invalid_api_key"}}"#, Unauthorized, "m");
        check(
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Server,
            "Overloaded",
        );
        check(
            r#"[{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}]"#,
            RateLimited,
            "quota",
        );
        check(r#"{"error":"model 'x' not found"}"#, Server, "model 'x' not found");
        check(r#"{"detail":"no"}"#, Server, "no");
        check(r#"{"error":{"code":404,"message":"m"}}"#, Configuration, "m");
    }

    #[test]
    fn any_body_is_some_error() {
        use ProviderErrorKind::Server;
        check("", Server, "");
        check("<html>\u{1b}[2J\n</html>", Server, "<html> [2J </html>");
        check("{}", Server, "{}");
        check("[]", Server, "[]");
        check(r#"{"error":{"message":5}}"#, Server, r#"{"error":{"message":5}}"#);
        assert_eq!(printable_excerpt(&"é".repeat(10_000)).chars().count(), MAX_SHOWN + 1);
    }

    #[test]
    fn an_event_without_an_error_reports_none() {
        for data in [r#"{"choices":[],"error":null}"#, r#"["error"]"#, r#"[{"error":{"message":"m"}}]"#] {
            assert_eq!(ReportedError::from_event(data), None, "{data}");
        }
        assert_eq!(ReportedError::from_event(r#"{"text":"an \"error\" in quotes"}"#), None);
        for data in [
            r#"{"error":1e999}"#,
            r#"{"error":{"message":"m"}}"#,
            r#"{"error":{"code":500}}"#,
            r#"{"error":true}"#,
        ] {
            assert!(ReportedError::from_event(data).is_some(), "{data}");
        }
    }

    #[test]
    fn an_error_too_long_to_be_read_is_one_all_the_same() {
        let data = format!(r#"{{"error":{{"code":429,"message":"{}"}}}}"#, "é".repeat(MAX_READ_BYTES));
        let reported = ReportedError::from_event(&data).expect("an error");
        assert_eq!(reported.kind, ProviderErrorKind::Server);
        assert!(reported.message.len() <= MAX_READ_BYTES && reported.message.starts_with(r#"{"code":429"#));
    }
}
