//! Google's Gemini API.

use super::*;
use crate::{StopReason, Usage};

fn finish(reason: &str) -> Value {
    json!({"candidates": [{"content": {"parts": [], "role": "model"}, "finishReason": reason, "index": 0}]})
}

#[tokio::test]
async fn a_conversation_is_sent_as_the_protocol_has_it() {
    let server = Server::start([Reply::events(events(&[finish("STOP")]))]).await;
    let model_request = ModelRequest { model: "gemini-2.5-pro".into(), ..whole_conversation() };
    answer(&provider(ProviderKind::Gemini, &server), model_request).await;
    let sent_request = &server.requests()[0];
    assert_eq!(sent_request.line, "POST /v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse");
    assert_eq!(sent_request.header("x-goog-api-key"), Some(KEY));
    assert_eq!(sent_request.header("authorization"), None);
    let mut body = sent_request.body();
    assert!(
        sent_request.text.contains("\"n\":340282366920938463463374607431768211455"),
        "{}",
        sent_request.text
    );
    body["contents"][1]["parts"][1]["functionCall"]["args"]["n"] = json!("checked above");
    // The schema dialect has separate tests.
    let declared = body["tools"][0]["functionDeclarations"][0].take();
    assert_eq!(declared["name"], "file_read");
    assert_eq!(declared["parameters"]["properties"]["path"]["type"], "string");
    assert_eq!(
        body,
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "generationConfig": {"maxOutputTokens": 100, "temperature": 0.5},
            "tools": [{"functionDeclarations": [null]}],
            "contents": [
                {"role": "user", "parts": [
                    {"text": "What is this?"},
                    {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
                ]},
                {"role": "model", "parts": [
                    {"text": "I look."},
                    {"functionCall": {"name": "file_read", "args": {"path": "a", "n": "checked above"}}},
                    {"functionCall": {"name": "file_list", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "file_read", "response": {"output": "content of a"}}},
                    {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
                    {"functionResponse": {"name": "file_list",
                        "response": {"error": "Tool execution failed: no path"}}},
                    {"text": "And now?"},
                ]},
            ],
        })
    );
}

#[tokio::test]
async fn an_inexpressible_schema_is_sent_unchanged() {
    let server = Server::start([Reply::events(events(&[finish("STOP")]))]).await;
    let schema = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let map =
        FunctionDecl { name: "map".into(), description: None, parameters: JsonSchema::new(schema.clone()) };
    assert!(portcullis_types::SchemaDialect::Gemini.render(&map.parameters).is_err(), "has no words for it");
    let model_request = ModelRequest { tools: vec![map], ..request(vec![Message::user("x")]) };
    answer(&provider(ProviderKind::Gemini, &server), model_request).await;
    let declared = &server.requests()[0].body()["tools"][0]["functionDeclarations"][0];
    assert_eq!(declared["parametersJsonSchema"], schema);
    assert_eq!(declared.get("parameters"), None);
}

#[tokio::test]
async fn calls_declare_a_missing_signature_except_to_old_models() {
    for (model, is_declared) in [
        ("gemini-3-pro", true),
        ("models/gemini-3.5-flash", true),
        ("gemini-flash-latest", true),
        ("gemini-pro-latest", true),
        ("gemini-10-pro", true),
        ("a-model", true),
        ("gemini-2.5-flash", false),
        ("models/gemini-2.0-flash-001", false),
        ("gemini-1.5-pro", false),
    ] {
        let server = Server::start([Reply::events(events(&[finish("STOP")]))]).await;
        let model_request = ModelRequest { model: model.into(), ..whole_conversation() };
        answer(&provider(ProviderKind::Gemini, &server), model_request).await;
        let parts = &server.requests()[0].body()["contents"][1]["parts"];
        let expected = json!("skip_thought_signature_validator");
        for part in [&parts[1], &parts[2]] {
            assert_eq!(part.get("thoughtSignature"), is_declared.then_some(&expected), "{model}");
        }
        assert_eq!(parts[0].get("thoughtSignature"), None, "{model}");
    }
}

#[tokio::test]
async fn an_answer_comes_in_its_pieces() {
    let parts = |parts: Value| json!({"candidates": [{"content": {"parts": parts, "role": "model"}}]});
    let server = Server::start([Reply::events(events(&[
        parts(json!([{"text": "hm", "thought": true}])),
        parts(json!([{"text": "I read."}])),
        parts(json!([
            {"functionCall": {"name": "file_read", "args": {"path": "a"}}, "thoughtSignature": "AA=="},
            {"functionCall": {"id": "x", "name": "file_list"}},
        ])),
        finish("STOP"),
        json!({"usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 2, "thoughtsTokenCount": 1}}),
    ]))])
    .await;
    let deltas = answer(&provider(ProviderKind::Gemini, &server), request(vec![Message::user("x")])).await;
    assert_eq!(
        deltas,
        [
            Delta::Thinking("hm".into()),
            Delta::Text("I read.".into()),
            piece(0, None, Some("file_read"), Some("{\"path\":\"a\"}")),
            piece(1, Some("x"), Some("file_list"), None),
            Delta::Usage(Usage { input_tokens: 4, output_tokens: 3 }),
            Delta::End(StopReason::ToolCalls),
        ]
    );
}

#[tokio::test]
async fn withheld_answer_ends_with_its_stop_reason() {
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}});
    for (event, reason) in [
        (blocked, StopReason::ContentFilter),
        (finish("SAFETY"), StopReason::ContentFilter),
        (finish("MAX_TOKENS"), StopReason::Length),
        (finish("MALFORMED_FUNCTION_CALL"), StopReason::Other("MALFORMED_FUNCTION_CALL".into())),
    ] {
        let server = Server::start([Reply::events(events(&[event]))]).await;
        let deltas =
            answer(&provider(ProviderKind::Gemini, &server), request(vec![Message::user("x")])).await;
        assert_eq!(deltas, [Delta::End(reason)]);
    }
}
