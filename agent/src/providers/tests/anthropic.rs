//! Anthropic's Messages API.

use super::*;
use crate::{ProviderErrorKind, StopReason, StrictTools, Usage};

/// Named events, as the API sends them.
fn event_reply(data: &[Value]) -> Reply {
    let text = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().expect("a type"));
    Reply::events(data.iter().map(text).collect::<String>())
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [],
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 1}}})
}

fn end(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ]
}

fn complete_reply(pieces: &[Value], reason: &str) -> Reply {
    event_reply(&[&[start()], pieces, &end(reason)].concat())
}

#[tokio::test]
async fn a_conversation_is_sent_as_the_protocol_has_it() {
    let server = Server::start([complete_reply(&[], "end_turn")]).await;
    answer(&provider(ProviderKind::Anthropic, &server), whole_conversation()).await;
    let sent_request = &server.requests()[0];
    assert_eq!(sent_request.line, "POST /v1/messages");
    assert_eq!(sent_request.header("x-api-key"), Some(KEY));
    assert_eq!(sent_request.header("authorization"), None);
    assert_eq!(sent_request.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(sent_request.header("content-type"), Some("application/json"));
    // Numbers are sent unchanged.
    assert!(
        sent_request.text.contains("\"n\":340282366920938463463374607431768211455"),
        "{}",
        sent_request.text
    );
    let mut body = sent_request.body();
    body["messages"][1]["content"][1]["input"]["n"] = json!("checked above");
    assert_eq!(
        body,
        json!({
            "model": "a-model",
            "max_tokens": 100,
            "stream": true,
            "temperature": 0.5,
            "system": "Be brief.",
            "tools": [{"name": "file_read", "description": "Reads a file.", "input_schema": schema()}],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "source":
                        {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                ]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "id_1", "name": "file_read",
                        "input": {"path": "a", "n": "checked above"}},
                    {"type": "tool_use", "id": "id_2", "name": "file_list", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "id_1", "content": [
                        {"type": "text", "text": "content of a"},
                        {"type": "image", "source":
                            {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                    ]},
                    {"type": "tool_result", "tool_use_id": "id_2", "is_error": true, "content": [
                        {"type": "text", "text": "Tool execution failed: no path"},
                    ]},
                    {"type": "text", "text": "And now?"},
                ]},
            ],
        })
    );
}

#[tokio::test]
async fn content_that_the_protocol_lacks_is_left_out() {
    let server = Server::start([complete_reply(&[], "end_turn")]).await;
    let mut empty = Message::tool_failure("a", &portcullis_types::ToolError::invalid_arguments("x"));
    empty.content.clear();
    let mut image = Message::user("");
    image.content =
        vec![portcullis_types::Content::Image { data: "AA==".into(), mime_type: "image/tiff".into() }];
    let model_request = ModelRequest {
        temperature: Some(1.7),
        ..request(vec![
            image,
            Message::assistant("", vec![call("a", "t", "not json")]),
            empty,
            Message::assistant("", Vec::new()),
        ])
    };
    answer(&provider(ProviderKind::Anthropic, &server), model_request).await;
    let body = server.requests()[0].body();
    assert_eq!(body["max_tokens"], 8192);
    assert_eq!(body["temperature"], 1.0);
    assert_eq!(body.get("system"), None);
    assert_eq!(body.get("tools"), None);
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [
                {"type": "text", "text": "[image, image/tiff, about 3 bytes, not shown]"}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "t", "input": {"INVALID_JSON": "not json"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": true}]},
        ])
    );
}

#[tokio::test]
async fn tools_are_strict_where_settings_say_so() {
    let server = Server::start([complete_reply(&[], "end_turn")]).await;
    let strict =
        ProviderSettings { strict_tools: StrictTools::Always, ..settings(ProviderKind::Anthropic, &server) };
    let model_request = ModelRequest { tools: vec![tool()], ..request(vec![Message::user("x")]) };
    answer(&RemoteProvider::new(strict).expect("a provider"), model_request).await;
    assert_eq!(server.requests()[0].body()["tools"][0]["strict"], true);
}

#[tokio::test]
async fn an_answer_comes_in_its_pieces() {
    let server = Server::start([complete_reply(
        &[
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "ping"}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I read."}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1,
                "content_block": {"type": "tool_use", "id": "toolu_1", "name": "file_read", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": ""}}),
            json!({"type": "content_block_delta", "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": "{\"path\": \"a"}}),
            json!({"type": "content_block_delta", "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": "\"}"}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "an_event_of_later", "index": 7}),
        ],
        "tool_use",
    )])
    .await;
    let deltas = answer(&provider(ProviderKind::Anthropic, &server), request(vec![Message::user("x")])).await;
    assert_eq!(
        deltas,
        [
            Delta::Usage(Usage { input_tokens: 7, output_tokens: 1 }),
            Delta::Text("I read.".into()),
            piece(1, Some("toolu_1"), Some("file_read"), None),
            piece(1, None, None, Some("{\"path\": \"a")),
            piece(1, None, None, Some("\"}")),
            Delta::Usage(Usage { input_tokens: 7, output_tokens: 9 }),
            Delta::End(StopReason::ToolCalls),
        ]
    );
}

#[tokio::test]
async fn arguments_that_come_whole_are_taken_once() {
    let begin = |index| {
        json!({"type": "content_block_start", "index": index,
            "content_block": {"type": "tool_use", "id": "a", "name": "t", "input": {"n": 1}}})
    };
    let server = Server::start([complete_reply(
        &[
            begin(0),
            json!({"type": "content_block_stop", "index": 0}),
            begin(1),
            json!({"type": "content_block_delta", "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": "{\"n\":1}"}}),
            json!({"type": "content_block_stop", "index": 1}),
        ],
        "tool_use",
    )])
    .await;
    let mut deltas =
        answer(&provider(ProviderKind::Anthropic, &server), request(vec![Message::user("x")])).await;
    deltas.retain(|delta| matches!(delta, Delta::ToolCall(_)));
    let begun = |index| piece(index, Some("a"), Some("t"), None);
    let arguments = |index| piece(index, None, None, Some("{\"n\":1}"));
    assert_eq!(deltas, [begun(0), arguments(0), begun(1), arguments(1)]);
}

#[tokio::test]
async fn the_reason_of_an_end_is_kept() {
    let reasons = [
        ("end_turn", StopReason::Stop),
        ("stop_sequence", StopReason::Stop),
        ("tool_use", StopReason::ToolCalls),
        ("max_tokens", StopReason::Length),
        ("refusal", StopReason::ContentFilter),
        ("pause_turn", StopReason::Other("pause_turn".into())),
    ];
    for (word, reason) in reasons {
        let server = Server::start([complete_reply(&[], word)]).await;
        let deltas =
            answer(&provider(ProviderKind::Anthropic, &server), request(vec![Message::user("x")])).await;
        assert_eq!(deltas.last(), Some(&Delta::End(reason)), "{word}");
    }
}

#[tokio::test]
async fn an_error_is_retried_before_the_first_word_and_not_after() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let text =
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}});
    let server = Server::start([
        event_reply(&[start(), overloaded.clone()]),
        event_reply(&[start(), text, overloaded]),
    ])
    .await;
    let provider = provider(ProviderKind::Anthropic, &server);
    let stream = provider.stream(request(vec![Message::user("x")])).await.expect("the second try");
    let (deltas, error) = drain(stream).await;
    assert_eq!(deltas.last(), Some(&Delta::Text("half".into())));
    let error = error.expect("broken off");
    assert_eq!(error.kind(), ProviderErrorKind::Server);
    assert!(error.to_string().contains("Overloaded"), "{error}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn an_answer_without_its_reason_is_not_whole() {
    let text =
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}});
    for last in [vec![], vec![json!({"type": "message_stop"})]] {
        let server =
            Server::start([event_reply(&[&[start(), text.clone()], last.as_slice()].concat())]).await;
        let stream =
            provider(ProviderKind::Anthropic, &server).stream(request(vec![Message::user("x")])).await;
        let (_, error) = drain(stream.expect("begins")).await;
        assert_eq!(error.expect("not whole").kind(), ProviderErrorKind::Incomplete);
    }
}

#[tokio::test]
async fn text_of_white_space_alone_is_not_sent() {
    let server = Server::start([complete_reply(&[], "end_turn")]).await;
    let mut blank_result = Message { tool_call_id: Some("a".into()), ..Message::user("\t") };
    blank_result.role = portcullis_types::MessageRole::Tool;
    let mut image = Message::user(" ");
    image
        .content
        .push(portcullis_types::Content::Image { data: "AAAA".into(), mime_type: "image/png".into() });
    let model_request = request(vec![
        Message::system(" \n"),
        Message::user("\u{a0}\r\n\u{1f}"),
        Message::assistant(" \n", vec![call("a", "t", "")]),
        blank_result,
        Message::assistant("  ", Vec::new()),
        image,
        Message::user(" x "),
    ]);
    answer(&provider(ProviderKind::Anthropic, &server), model_request).await;
    let body = server.requests()[0].body();
    assert_eq!(body.get("system"), None);
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "[empty message]"}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "t", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "text", "text": " x "},
            ]},
        ])
    );
}
