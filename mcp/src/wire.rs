//! Decodes messages for the protocol, and keeps the raw text of a call's arguments.
//!
//! The pipeline decodes arguments strictly: it refuses duplicate keys, numbers out of range and text after
//! the end. It needs the client's own text, because a lenient decoder would hide these faults.

use std::borrow::Cow;

use rmcp::{
    RoleServer,
    model::{ClientRequest, ErrorData, GetExtensions as _, JsonRpcMessage, RequestId},
    service::RxJsonRpcMessage,
};
use serde::Deserialize;
use serde_json::{Value, error::Category, value::RawValue};

/// The raw text of a call's arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RawArguments(pub(super) String);

/// A message that cannot be decoded: the refusal, and the request's id if it can be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) id: Option<RequestId>,
    pub(super) error: ErrorData,
}

/// The fields of a request that are needed here.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<CallOutline<'a>>,
}

#[derive(Deserialize)]
struct CallOutline<'a> {
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageId {
    id: Option<RequestId>,
}

/// A decoded message.
#[derive(Debug)]
pub(super) struct DecodedMessage {
    pub(super) message: RxJsonRpcMessage<RoleServer>,
    /// The text of the message with `{}` in place of its arguments, if the protocol's decoder refuses the
    /// arguments. `None` if the text was not rewritten.
    pub(super) text: Option<Vec<u8>>,
}

/// Decodes one message. A call is accepted even if the protocol's decoder refuses its arguments, for example
/// because of half a surrogate pair or a huge number. The pipeline then reports the fault and writes an audit
/// row.
///
/// # Errors
/// [`Unreadable`] with the answer for the client.
pub(super) fn decode(text: &[u8]) -> Result<DecodedMessage, Unreadable> {
    let (mut message, rewritten) = match serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(text) {
        Ok(message) => (message, None),
        Err(error) => {
            let rewritten = without_arguments(text).ok_or_else(|| refusal(text, &error))?;
            // Report the first error, because it is about the client's own text.
            let message = serde_json::from_slice(&rewritten).map_err(|_other| refusal(text, &error))?;
            (message, Some(rewritten))
        }
    };
    if let JsonRpcMessage::Request(request) = &mut message
        && let ClientRequest::CallToolRequest(call) = &mut request.request
    {
        let id = request.id.clone();
        let arguments = arguments(text).map_err(|error| invalid(Some(id), &error))?;
        call.extensions_mut().insert(arguments);
    }
    Ok(DecodedMessage { message, text: rewritten })
}

/// Returns a call's text with `{}` in place of its arguments, or `None` for any other message.
fn without_arguments(text: &[u8]) -> Option<Vec<u8>> {
    let outline: Outline<'_> = serde_json::from_slice(text).ok()?;
    let arguments = outline.params.filter(|_| outline.method.as_deref() == Some(CALL))?.arguments?.get();
    // Keep arguments that are not an object: they are a fault of the message, which `{}` would hide.
    if !arguments.starts_with('{') {
        return None;
    }
    // The arguments are a slice of `text`, so the difference of the pointers is their offset.
    let start = (arguments.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let (before, after) = (text.get(..start)?, text.get(start + arguments.len()..)?);
    Some([before, b"{}", after].concat())
}

/// Method name of a call.
const CALL: &str = "tools/call";

/// Returns the text of the arguments that [`decode`] kept.
pub(super) fn raw_arguments(message: &RxJsonRpcMessage<RoleServer>) -> RawArguments {
    let arguments = match message {
        JsonRpcMessage::Request(request) => request.request.extensions().get::<RawArguments>().cloned(),
        _ => None,
    };
    arguments.unwrap_or_default()
}

/// Returns the raw text of a call's arguments, which is empty if the call has none.
fn arguments(text: &[u8]) -> Result<RawArguments, serde_json::Error> {
    let outline: Outline<'_> = serde_json::from_slice(text)?;
    let raw = outline.params.and_then(|params| params.arguments);
    Ok(RawArguments(raw.map(|raw| raw.get().to_owned()).unwrap_or_default()))
}

fn refusal(text: &[u8], error: &serde_json::Error) -> Unreadable {
    match error.classify() {
        Category::Syntax | Category::Eof => {
            let message = format!("this is not JSON: {error}");
            // If only a part of the message is invalid, its id can still be read. Send it, so that the client
            // knows which request was refused.
            let id = parse_id(text);
            Unreadable { id, error: ErrorData::parse_error(message, None) }
        }
        Category::Data | Category::Io => {
            let id = parse_id(text);
            let is_batch = text.trim_ascii_start().first() == Some(&b'[');
            if is_batch {
                let message = "batches are not supported: send one message at a time";
                return Unreadable { id: None, error: ErrorData::invalid_request(message, None) };
            }
            invalid(id, error)
        }
    }
}

fn parse_id(text: &[u8]) -> Option<RequestId> {
    serde_json::from_slice::<MessageId>(text).ok()?.id
}

fn invalid(id: Option<RequestId>, error: &serde_json::Error) -> Unreadable {
    let message = format!("this is not a message of the protocol: {error}");
    Unreadable { id, error: ErrorData::invalid_request(message, None::<Value>) }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ErrorCode;

    use super::*;

    #[test]
    fn the_arguments_of_a_call_are_kept_as_they_were_written() {
        for (arguments, expected_text) in [
            (r#","arguments":{"a": 1, "a" :2}"#, r#"{"a": 1, "a" :2}"#),
            (
                r#","arguments":{"n":340282366920938463463374607431768211455}"#,
                r#"{"n":340282366920938463463374607431768211455}"#,
            ),
            ("", ""),
            (r#","arguments":{"half": "\ud83d"}"#, r#"{"half": "\ud83d"}"#),
            (r#","arguments": {"n":1e999} "#, r#"{"n":1e999}"#),
        ] {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo"{arguments}}}}}"#
            );
            let message = decode(text.as_bytes()).expect("decodes").message;
            let JsonRpcMessage::Request(request) = message else { panic!("no request") };
            let ClientRequest::CallToolRequest(call) = request.request else { panic!("no call") };
            assert_eq!(call.extensions.get::<RawArguments>(), Some(&RawArguments(expected_text.to_owned())));
        }
    }

    #[track_caller]
    fn check_refused(text: &str, code: ErrorCode, id: Option<i64>) {
        let refused = decode(text.as_bytes()).expect_err(text);
        assert_eq!(refused.error.code, code, "{text}");
        assert_eq!(refused.id, id.map(RequestId::Number), "{text}");
    }

    #[test]
    fn malformed_message_is_refused_by_its_kind() {
        check_refused("hello", ErrorCode::PARSE_ERROR, None);
        check_refused(r#"{"jsonrpc":"2.0","id":1,"met"#, ErrorCode::PARSE_ERROR, None);
        check_refused(&"[".repeat(100_000), ErrorCode::PARSE_ERROR, None);
        check_refused("[]", ErrorCode::INVALID_REQUEST, None);
        check_refused("7", ErrorCode::INVALID_REQUEST, None);
        check_refused(r#"{"id":7}"#, ErrorCode::INVALID_REQUEST, Some(7));
        check_refused("\u{0}", ErrorCode::PARSE_ERROR, None);
        check_refused(
            r#"{"jsonrpc":"2.0","id":8,"method":"ping","params":{"a":"\ud83d"}}"#,
            ErrorCode::PARSE_ERROR,
            Some(8),
        );
        assert_eq!(decode(b"\"\xff\"").expect_err("no text").error.code, ErrorCode::PARSE_ERROR);
    }
}
