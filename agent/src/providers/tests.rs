//! Tests of the providers against a local server that has their protocols and fails on demand.

mod anthropic;
mod faults;
mod gemini;
mod odd_responses;
mod ollama;
mod openai;
mod redirects;
mod scripted;
mod server;
mod wires;

use std::{error::Error, time::Duration};

use futures_util::StreamExt;
use portcullis_types::{CancellationToken, FunctionDecl, JsonSchema, Message, ToolCall};
use serde_json::{Value, json};

use super::{ApiKey, ProviderKind, ProviderLimits, ProviderSettings, RemoteProvider};
use crate::{Delta, DeltaStream, ModelRequest, Provider, ProviderError, ToolCallDelta};

use server::{Reply, Server};
use wires::WIRES;

/// A key that no error may show.
const KEY: &str = "sk-very-secret-0123";

/// Limits for servers that fail. Waits are short, because the server has no other client.
fn limits() -> ProviderLimits {
    ProviderLimits {
        idle_timeout: Duration::from_secs(30),
        retry_wait: Duration::from_millis(1),
        retry_wait_max: Duration::from_secs(2),
        ..ProviderLimits::default()
    }
}

fn settings(kind: ProviderKind, server: &Server) -> ProviderSettings {
    ProviderSettings::new(kind, "a-model")
        .with_base_url(server.url())
        .with_key(ApiKey::new(KEY).expect("a key"))
        .with_limits(limits())
}

fn provider(kind: ProviderKind, server: &Server) -> RemoteProvider {
    RemoteProvider::new(settings(kind, server)).expect("a provider")
}

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        model: String::new(),
        messages,
        tools: Vec::new(),
        max_tokens: None,
        temperature: None,
        cancel: CancellationToken::new(),
    }
}

/// Returns a conversation with every kind of content: instructions, a person, two calls, a result, a failure,
/// an image.
fn whole_conversation() -> ModelRequest {
    let image = portcullis_types::Content::Image { data: "AAAA".into(), mime_type: "image/png".into() };
    let mut with_image = Message::user("What is this?");
    with_image.content.push(image.clone());
    let calls = vec![
        call("id_1", "file_read", "{\"path\":\"a\",\"n\":340282366920938463463374607431768211455}"),
        call("id_2", "file_list", ""),
    ];
    let mut result = Message { tool_call_id: Some("id_1".into()), ..Message::user("content of a") };
    result.role = portcullis_types::MessageRole::Tool;
    result.content.push(image);
    let failure = Message::tool_failure("id_2", &portcullis_types::ToolError::invalid_arguments("no path"));
    ModelRequest {
        tools: vec![tool()],
        max_tokens: Some(100),
        temperature: Some(0.5),
        ..request(vec![
            Message::system("Be brief."),
            with_image,
            Message::assistant("I look.", calls),
            result,
            failure,
            Message::user("And now?"),
        ])
    }
}

fn tool() -> FunctionDecl {
    FunctionDecl {
        name: "file_read".into(),
        description: Some("Reads a file.".into()),
        parameters: JsonSchema::new(schema()),
    }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["path"],
        "additionalProperties": false,
    })
}

fn call(id: &str, tool: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), tool: tool.into(), arguments: arguments.into() }
}

fn piece(index: u64, id: Option<&str>, name: Option<&str>, arguments: Option<&str>) -> Delta {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Delta::ToolCall(ToolCallDelta { index, id: owned(id), name: owned(name), arguments: owned(arguments) })
}

/// Reads a whole stream: its pieces, and the error that it ends with.
async fn drain(mut stream: DeltaStream) -> (Vec<Delta>, Option<ProviderError>) {
    let mut deltas = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(delta) => deltas.push(delta),
            Err(error) => {
                assert!(stream.next().await.is_none(), "nothing follows an error");
                return (deltas, Some(error));
            }
        }
    }
    (deltas, None)
}

/// Reads a complete answer.
async fn answer(provider: &impl Provider, request: ModelRequest) -> Vec<Delta> {
    let stream = provider.stream(request).await.expect("an answer");
    let (deltas, error) = drain(stream).await;
    assert!(error.is_none(), "{error:?}");
    assert!(matches!(deltas.last(), Some(Delta::End(_))), "{deltas:?}");
    deltas
}

/// Returns the error of a request without an answer.
async fn refusal(provider: &impl Provider, request: ModelRequest) -> ProviderError {
    match provider.stream(request).await {
        Err(error) => error,
        Ok(_) => panic!("there is an answer"),
    }
}

/// Returns all text of an error that could be printed.
pub(super) fn printable_text(error: &ProviderError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    text
}

/// Returns server-sent events with these data.
fn events(data: &[Value]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}
