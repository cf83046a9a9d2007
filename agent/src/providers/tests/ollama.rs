//! Ollama's own chat API.

use super::*;
use crate::{ProviderErrorKind, StopReason, Usage};

fn lines(data: &[Value]) -> Reply {
    let body: String = data.iter().map(|line| format!("{line}\n")).collect();
    Reply::new(200, "application/x-ndjson", body)
}

#[tokio::test]
async fn a_conversation_is_sent_as_the_protocol_has_it() {
    let server = Server::start([lines(&[json!({"done": true, "done_reason": "stop"})])]).await;
    answer(&provider(ProviderKind::Ollama, &server), whole_conversation()).await;
    let sent_request = &server.requests()[0];
    assert_eq!(sent_request.line, "POST /api/chat");
    assert_eq!(sent_request.header("authorization"), Some("Bearer sk-very-secret-0123"));
    let mut body = sent_request.body();
    assert!(
        sent_request.text.contains("\"n\":340282366920938463463374607431768211455"),
        "{}",
        sent_request.text
    );
    body["messages"][2]["tool_calls"][0]["function"]["arguments"]["n"] = json!("checked above");
    assert_eq!(
        body,
        json!({
            "model": "a-model",
            "stream": true,
            "options": {"num_predict": 100, "temperature": 0.5},
            "tools": [{"type": "function", "function": {
                "name": "file_read", "description": "Reads a file.", "parameters": schema(),
            }}],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "What is this?", "images": ["AAAA"]},
                {"role": "assistant", "content": "I look.", "tool_calls": [
                    {"function": {"name": "file_read", "arguments": {"path": "a", "n": "checked above"}}},
                    {"function": {"name": "file_list", "arguments": {}}},
                ]},
                {"role": "tool", "tool_name": "file_read",
                    "content": "content of a\n[image, image/png, about 3 bytes, not shown]"},
                {"role": "tool", "tool_name": "file_list", "content": "Tool execution failed: no path"},
                {"role": "user", "content": "And now?"},
            ],
        })
    );
}

#[tokio::test]
async fn an_answer_comes_in_its_pieces() {
    let server = Server::start([lines(&[
        json!({"message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": false}),
        json!({"message": {"role": "assistant", "content": "I read."}, "done": false}),
        json!({"message": {"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "file_read", "arguments": {"path": "a"}}},
            {"function": {"name": "file_list", "arguments": {}}},
        ]}, "done": false}),
        json!({"message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop",
            "prompt_eval_count": 4, "eval_count": 2}),
    ])])
    .await;
    let deltas = answer(&provider(ProviderKind::Ollama, &server), request(vec![Message::user("x")])).await;
    assert_eq!(
        deltas,
        [
            Delta::Thinking("hm".into()),
            Delta::Text("I read.".into()),
            piece(0, None, Some("file_read"), Some("{\"path\":\"a\"}")),
            piece(1, None, Some("file_list"), Some("{}")),
            Delta::Usage(Usage { input_tokens: 4, output_tokens: 2 }),
            Delta::End(StopReason::ToolCalls),
        ]
    );
}

#[tokio::test]
async fn an_answer_that_is_cut_or_fails_is_an_error() {
    let text_event = json!({"message": {"content": "half"}, "done": false});
    for (data, kind) in [
        (vec![text_event.clone()], ProviderErrorKind::Incomplete),
        (vec![text_event.clone(), json!({"error": "out of memory"})], ProviderErrorKind::Server),
    ] {
        let server = Server::start([lines(&data)]).await;
        let stream = provider(ProviderKind::Ollama, &server).stream(request(vec![Message::user("x")])).await;
        let (deltas, error) = drain(stream.expect("begins")).await;
        assert_eq!(deltas, [Delta::Text("half".into())]);
        assert_eq!(error.expect("an error").kind(), kind);
    }
}
