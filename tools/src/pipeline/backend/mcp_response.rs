//! Parses the responses of MCP servers into results of calls.

use std::{convert::Infallible, pin::pin};

use futures_util::{StreamExt as _, stream};
use portcullis_egress::Response;
use portcullis_types::{Content, ToolError, ToolErrorCode, ToolOutput};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::value::RawValue;
use sse_stream::SseStream;

use crate::web::refused_with_body;

/// The maximum length of a message from a server, in bytes: 4 MiB, as for messages of clients.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Replaces content of a kind that a later revision defines.
const UNKNOWN: &str = "[content of a kind that is not known here]";

/// The fields of a JSON-RPC 2.0 message that a response needs.
#[derive(Deserialize)]
struct JsonRpcMessage<'m> {
    id: Option<Id>,
    #[serde(borrow)]
    result: Option<&'m RawValue>,
    error: Option<RpcError>,
}

/// The id of a message. The ids of our requests are numbers; a server's own requests can have any id.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Ours(u64),
    Other(IgnoredAny),
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    message: String,
}

/// Returns the result of the request with this id.
///
/// # Errors
/// `http_status` for a status of 400 or above, `remote_error` for an error of the server, and `response_invalid` for a
/// body without an answer.
pub(super) async fn read_result<T: DeserializeOwned>(response: &Response, id: u64) -> Result<T, ToolError> {
    let text = std::str::from_utf8(&response.body).ok();
    if let Some(error) = refused_with_body(response, text) {
        return Err(error);
    }
    let content_type = response.headers.get("content-type").and_then(|value| value.to_str().ok());
    let essence = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("text/event-stream") {
        let bytes = stream::iter([Ok::<_, Infallible>(response.body.clone())]);
        let mut events = pin!(SseStream::from_bytes_stream(bytes));
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| invalid(&format!("no stream of events: {error}")))?;
            // Other events are the server's notifications and requests, which this client ignores.
            if let Some(result) = event.data.as_deref().and_then(|data| result_of(data, id)) {
                return result;
            }
        }
        return Err(invalid("a stream without the answer"));
    }
    let answer = text.and_then(|text| result_of(text, id));
    answer.unwrap_or_else(|| Err(invalid("no answer to the request")))
}

/// Returns the result for this request; `None` if the message does not answer it.
fn result_of<T: DeserializeOwned>(text: &str, id: u64) -> Option<Result<T, ToolError>> {
    if text.len() > MAX_MESSAGE_BYTES {
        return Some(Err(invalid(&format!("a message of more than {} MiB", MAX_MESSAGE_BYTES >> 20))));
    }
    let message: JsonRpcMessage<'_> = serde_json::from_str(text).ok()?;
    if !matches!(message.id, Some(Id::Ours(of)) if of == id) {
        return None;
    }
    match message {
        JsonRpcMessage { error: Some(RpcError { code, message }), .. } => {
            let message = format!("the server refuses the request ({code}): {message}");
            Some(Err(ToolError::failed(message).with_code(ToolErrorCode::RemoteError)))
        }
        JsonRpcMessage { result: Some(result), .. } => {
            let read = serde_json::from_str(result.get());
            Some(read.map_err(|error| invalid(&format!("a response of another form: {error}"))))
        }
        JsonRpcMessage { .. } => None,
    }
}

fn invalid(found: &str) -> ToolError {
    ToolError::failed(format!("the server's answer is {found}")).with_code(ToolErrorCode::ResponseInvalid)
}

/// Converts the result of a call of a remote tool.
///
/// # Errors
/// `remote_error` if the tool reports a failure.
pub(super) fn output_of_call(result: CallToolResult) -> Result<ToolOutput, ToolError> {
    let content: Vec<Content> = result.content.into_iter().map(content).collect();
    if result.is_error == Some(true) {
        let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
        let message = if texts.is_empty() { "the tool has failed".to_owned() } else { texts.join("\n") };
        return Err(ToolError::failed(message).with_code(ToolErrorCode::RemoteError));
    }
    let mut output = match result.structured_content {
        Some(structured) => ToolOutput::structured(structured),
        None => ToolOutput::default(),
    };
    // Servers repeat structured data as text, for clients without support for structured data.
    if !content.is_empty() {
        output.content = content;
    }
    Ok(output)
}

fn content(block: ContentBlock) -> Content {
    match block {
        ContentBlock::Text(text) => Content::text(text.text),
        ContentBlock::Image(image) => Content::Image { data: image.data, mime_type: image.mime_type },
        ContentBlock::Audio(audio) => Content::Audio { data: audio.data, mime_type: audio.mime_type },
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
                Content::Resource { uri, mime_type, text: Some(text), blob: None }
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                Content::Resource { uri, mime_type, text: None, blob: Some(blob) }
            }
            _ => Content::text(UNKNOWN),
        },
        ContentBlock::ResourceLink(link) => Content::ResourceLink {
            uri: link.uri,
            name: link.name,
            description: link.description,
            mime_type: link.mime_type,
        },
        _ => Content::text(UNKNOWN),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> Option<Result<Value, ToolError>> {
        result_of(text, 7)
    }

    #[test]
    fn only_the_answer_to_the_request_is_read() {
        let answer = read(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#).expect("an answer");
        assert_eq!(answer.expect("a result"), json!({"a": 1}));
        for other in [
            r#"{"jsonrpc":"2.0","id":8,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"7","method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            "[]",
            "no JSON",
        ] {
            assert!(read(other).is_none(), "{other}");
        }
        let refused = read(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such tool"}}"#);
        let error = refused.expect("an answer").expect_err("refused");
        assert_eq!(error.code(), "remote_error");
        assert!(error.to_string().contains("no such tool"), "{error}");
        let long = format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{}"}}"#, "x".repeat(MAX_MESSAGE_BYTES));
        assert_eq!(read(&long).expect("refused").expect_err("too long").code(), "response_invalid");
    }

    fn called(result: Value) -> Result<ToolOutput, ToolError> {
        output_of_call(serde_json::from_value(result).expect("a result"))
    }

    #[test]
    fn all_kinds_of_content_are_kept() {
        let output = called(json!({"content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "x:y", "mimeType": "text/plain", "text": "z"}},
            {"type": "resource", "resource": {"uri": "x:y", "blob": "aGk="}},
            {"type": "resource_link", "uri": "x:y", "name": "n"},
        ], "structuredContent": {"n": 1}}));
        let output = output.expect("a result");
        assert_eq!((output.content.len(), output.structured), (6, Some(json!({"n": 1}))));
        assert_eq!(called(json!({"content": []})).expect("empty").content.len(), 0);
        let failed =
            called(json!({"content": [{"type": "text", "text": "no such customer"}], "isError": true}));
        let error = failed.expect_err("failed");
        assert_eq!((error.code(), error.to_string().contains("no such customer")), ("remote_error", true));
    }
}
