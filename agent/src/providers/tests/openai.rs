//! Chat completions, the protocol of OpenAI and of most servers.

use super::{
    super::wire::{self, WireRequest},
    *,
};
use crate::{StopReason, StrictTools, Usage};

#[expect(clippy::needless_pass_by_value, reason = "so that a case is read as it is written")]
fn chunk(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn done(data: &[Value]) -> Reply {
    Reply::events(events(data) + "data: [DONE]\n\n")
}

#[tokio::test]
async fn a_conversation_is_sent_as_the_protocol_has_it() {
    let server = Server::start([done(&[finish("stop")])]).await;
    answer(&provider(ProviderKind::OpenAi, &server), whole_conversation()).await;
    let sent_request = &server.requests()[0];
    assert_eq!(sent_request.line, "POST /v1/chat/completions");
    assert_eq!(sent_request.header("authorization"), Some("Bearer sk-very-secret-0123"));
    assert_eq!(sent_request.header("content-type"), Some("application/json"));
    assert_eq!(sent_request.header("accept"), Some("text/event-stream"));
    assert_eq!(
        sent_request.body(),
        json!({
            "model": "a-model",
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": 100,
            "temperature": 0.5,
            "tools": [{"type": "function", "function": {
                "name": "file_read", "description": "Reads a file.", "parameters": schema(),
            }}],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ]},
                {"role": "assistant", "content": "I look.", "tool_calls": [
                    {"id": "id_1", "type": "function", "function": {
                        "name": "file_read",
                        "arguments": "{\"path\":\"a\",\"n\":340282366920938463463374607431768211455}",
                    }},
                    {"id": "id_2", "type": "function", "function": {"name": "file_list", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "id_1",
                    "content": "content of a\n[image, image/png, about 3 bytes, not shown]"},
                {"role": "tool", "tool_call_id": "id_2", "content": "Tool execution failed: no path"},
                {"role": "user", "content": "And now?"},
            ],
        })
    );
}

#[tokio::test]
async fn without_a_key_none_is_sent() {
    let server = Server::start([done(&[finish("stop")])]).await;
    let settings = ProviderSettings::new(ProviderKind::OpenAi, "m").with_base_url(server.url());
    answer(&RemoteProvider::new(settings).expect("a provider"), request(vec![Message::user("x")])).await;
    assert_eq!(server.requests()[0].header("authorization"), None);
}

#[tokio::test]
async fn a_request_may_name_its_model() {
    let server = Server::start([done(&[finish("stop")])]).await;
    let model_request = ModelRequest { model: "another".into(), ..request(vec![Message::user("x")]) };
    answer(&provider(ProviderKind::OpenAi, &server), model_request).await;
    assert_eq!(server.requests()[0].body()["model"], "another");
}

#[tokio::test]
async fn tools_are_strict_if_settings_and_schema_allow_it() {
    let server = Server::start([done(&[finish("stop")])]).await;
    let strict =
        ProviderSettings { strict_tools: StrictTools::Always, ..settings(ProviderKind::OpenAi, &server) };
    let map = FunctionDecl {
        name: "map".into(),
        description: None,
        parameters: JsonSchema::new(json!({"type": "object", "additionalProperties": {"type": "string"}})),
    };
    let model_request = ModelRequest { tools: vec![tool(), map], ..request(vec![Message::user("x")]) };
    answer(&RemoteProvider::new(strict).expect("a provider"), model_request).await;
    let tools = &server.requests()[0].body()["tools"];
    assert_eq!(tools[0]["function"]["strict"], true);
    assert_eq!(tools[0]["function"]["parameters"]["required"], json!(["path", "limit"]));
    assert_eq!(tools[1]["function"].get("strict"), None);
    assert_eq!(tools[1]["function"]["parameters"]["additionalProperties"]["type"], "string");
}

#[test]
fn openai_gets_the_token_limit_in_its_own_field() {
    let model_request = whole_conversation();
    let body = |official| -> Value {
        let request = WireRequest { model: "m", chat: &model_request, strict: official, official };
        let body = wire::body(ProviderKind::OpenAi, request).expect("a body");
        serde_json::from_slice(&body).expect("JSON")
    };
    assert_eq!((&body(true)["max_completion_tokens"], body(true).get("max_tokens")), (&json!(100), None));
    assert_eq!((&body(false)["max_tokens"], body(false).get("max_completion_tokens")), (&json!(100), None));
}

#[tokio::test]
async fn an_answer_comes_in_its_pieces() {
    let server = Server::start([done(&[
        chunk(json!({"role": "assistant", "content": ""})),
        chunk(json!({"reasoning_content": "hm"})),
        chunk(json!({"content": "I "})),
        chunk(json!({"content": "read."})),
        chunk(json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
            "function": {"name": "file_read", "arguments": ""}}]})),
        chunk(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"path\":"}}]})),
        chunk(json!({"tool_calls": [{"index": 2, "id": "c2", "function": {"name": "file_list", "arguments": "{}"}}]})),
        chunk(json!({"tool_calls": [{"index": 0, "function": {"arguments": "\"a\"}"}}]})),
        finish("tool_calls"),
        json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}),
    ])])
    .await;
    let deltas = answer(&provider(ProviderKind::OpenAi, &server), request(vec![Message::user("x")])).await;
    assert_eq!(
        deltas,
        [
            Delta::Thinking("hm".into()),
            Delta::Text("I ".into()),
            Delta::Text("read.".into()),
            piece(0, Some("c1"), Some("file_read"), None),
            piece(0, None, None, Some("{\"path\":")),
            piece(2, Some("c2"), Some("file_list"), Some("{}")),
            piece(0, None, None, Some("\"a\"}")),
            Delta::Usage(Usage { input_tokens: 7, output_tokens: 3 }),
            Delta::End(StopReason::ToolCalls),
        ]
    );
}

#[tokio::test]
async fn servers_that_count_no_calls_or_send_objects_are_read_too() {
    let server = Server::start([done(&[
        chunk(json!({"tool_calls": [{"id": "a", "function": {"name": "x", "arguments": {"n": 1}}}]})),
        chunk(json!({"tool_calls": [{"id": "b", "function": {"name": "y", "arguments": null}}]})),
        chunk(json!({"tool_calls": [{"function": {"arguments": "{}"}}]})),
        finish("stop"),
    ])])
    .await;
    let deltas = answer(&provider(ProviderKind::OpenAi, &server), request(vec![Message::user("x")])).await;
    assert_eq!(
        deltas,
        [
            piece(0, Some("a"), Some("x"), Some("{\"n\":1}")),
            piece(1, Some("b"), Some("y"), None),
            piece(1, None, None, Some("{}")),
            // The server says `stop`, but there are calls.
            Delta::End(StopReason::ToolCalls),
        ]
    );
}

#[tokio::test]
async fn the_reason_of_an_end_is_kept() {
    let reasons = [
        ("stop", StopReason::Stop),
        ("length", StopReason::Length),
        ("content_filter", StopReason::ContentFilter),
        ("tool_calls", StopReason::ToolCalls),
        ("tired", StopReason::Other("tired".into())),
    ];
    for (word, reason) in reasons {
        let server = Server::start([done(&[chunk(json!({"content": "x"})), finish(word)])]).await;
        let deltas =
            answer(&provider(ProviderKind::OpenAi, &server), request(vec![Message::user("x")])).await;
        assert_eq!(deltas.last(), Some(&Delta::End(reason)), "{word}");
    }
}

#[tokio::test]
async fn calls_that_the_limit_cut_off_end_with_that_limit() {
    let server = Server::start([done(&[
        chunk(
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{\"p"}}]}),
        ),
        finish("length"),
    ])])
    .await;
    let deltas = answer(&provider(ProviderKind::OpenAi, &server), request(vec![Message::user("x")])).await;
    assert_eq!(deltas.last(), Some(&Delta::End(StopReason::Length)));
}

#[tokio::test]
async fn an_answer_with_a_reason_is_whole_without_its_last_word() {
    let body = events(&[chunk(json!({"content": "x"})), finish("stop")]);
    for reply in [Reply::events(&body), Reply::events(&body).and_break()] {
        let server = Server::start([reply]).await;
        let deltas =
            answer(&provider(ProviderKind::OpenAi, &server), request(vec![Message::user("x")])).await;
        assert_eq!(deltas, [Delta::Text("x".into()), Delta::End(StopReason::Stop)]);
    }
}

#[tokio::test]
async fn a_piece_without_a_choice_says_nothing() {
    let server = Server::start([done(&[
        json!({"choices": []}),
        json!({"choices": null}),
        json!({}),
        json!({"choices": [{}]}),
        json!({"choices": [{"index": 1, "delta": {"content": "of another choice"}}]}),
        chunk(json!({"content": "x"})),
        finish("stop"),
    ])])
    .await;
    let deltas = answer(&provider(ProviderKind::OpenAi, &server), request(vec![Message::user("x")])).await;
    assert_eq!(deltas, [Delta::Text("x".into()), Delta::End(StopReason::Stop)]);
}
