//! Answers that start or end in ways outside the protocols.

use super::*;
use crate::{MAX_LISTED_CALLS, ProviderErrorKind, StopReason};

fn hello() -> ModelRequest {
    request(vec![Message::user("x")])
}

fn framed_reply(kind: ProviderKind, data: &[Value]) -> Reply {
    match kind {
        ProviderKind::Ollama => {
            let lines: String = data.iter().map(|data| format!("{data}\n")).collect();
            Reply::new(200, "application/x-ndjson", lines)
        }
        _ => Reply::events(events(data)),
    }
}

/// Returns the pieces of an answer, and the error that ends the request or the answer.
async fn ask_with_reply(
    kind: ProviderKind,
    reply: Reply,
    limits: ProviderLimits,
) -> (Vec<Delta>, Option<ProviderError>) {
    let server = Server::start([reply]).await;
    let settings = settings(kind, &server).with_limits(limits);
    match RemoteProvider::new(settings).expect("a provider").stream(hello()).await {
        Ok(stream) => drain(stream).await,
        Err(error) => (Vec::new(), Some(error)),
    }
}

#[track_caller]
fn assert_too_large(error: Option<ProviderError>) {
    let error = error.expect("an error");
    assert_eq!(error.kind(), ProviderErrorKind::Malformed);
    assert!(error.to_string().contains("larger than the limit"), "{error}");
}

/// Returns the events of an Anthropic call whose arguments arrive with its start, and the stop reason. No
/// event ends the call.
fn begun_call(input: &Value) -> [Value; 2] {
    [
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "tool_use", "id": "a", "name": "t", "input": input}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
    ]
}

#[tokio::test]
async fn initial_arguments_are_kept_though_nothing_ends_the_call() {
    let call_events = begun_call(&json!({"n": 1}));
    let stop = json!({"type": "message_stop"});
    let late_arguments = json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": "{\"n\":1}"}});
    let [call, reason] = call_events.clone();
    for reply in [
        Reply::events(events(&[call.clone(), reason.clone(), stop.clone()])),
        Reply::events(events(&call_events)),
        Reply::events(events(&call_events)).and_break(),
        // Pieces replace the initial arguments even after the stop reason.
        Reply::events(events(&[call, reason, late_arguments, stop])),
    ] {
        let (deltas, error) = ask_with_reply(ProviderKind::Anthropic, reply, limits()).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(
            deltas,
            [
                piece(0, Some("a"), Some("t"), None),
                piece(0, None, None, Some("{\"n\":1}")),
                Delta::End(StopReason::ToolCalls),
            ]
        );
    }
}

#[tokio::test]
async fn arguments_that_only_the_end_brings_count_towards_the_limit() {
    let small_limits = ProviderLimits { response_bytes: 100, ..limits() };
    let [call, reason] = begun_call(&json!({"text": "x".repeat(100)}));
    for reply in [
        Reply::events(events(&[call.clone(), reason.clone(), json!({"type": "message_stop"})])),
        Reply::events(events(&[call.clone(), reason.clone()])),
        Reply::events(events(&[call, reason])).and_break(),
    ] {
        let (deltas, error) = ask_with_reply(ProviderKind::Anthropic, reply, small_limits).await;
        assert_eq!(deltas, [piece(0, Some("a"), Some("t"), None)]);
        assert_too_large(error);
    }
}

/// Returns the first half of an answer, and an end for this reason.
fn text_and_reason(kind: ProviderKind, reason: &str) -> [Value; 2] {
    match kind {
        ProviderKind::OpenAi => [
            json!({"choices": [{"delta": {"content": "half"}}]}),
            json!({"choices": [{"delta": {}, "finish_reason": reason}]}),
        ],
        ProviderKind::Anthropic => [
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}}),
            json!({"type": "message_delta", "delta": {"stop_reason": reason}}),
        ],
        ProviderKind::Gemini => [
            json!({"candidates": [{"content": {"parts": [{"text": "half"}]}}]}),
            json!({"candidates": [{"finishReason": reason}]}),
        ],
        ProviderKind::Ollama => [
            json!({"message": {"content": "half"}, "done": false}),
            json!({"message": {"content": ""}, "done": true, "done_reason": reason}),
        ],
    }
}

#[tokio::test]
async fn an_empty_reason_ends_no_answer() {
    for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic, ProviderKind::Gemini] {
        for empty in ["", " "] {
            let reply = || framed_reply(kind, &text_and_reason(kind, empty));
            for (reply, expected) in [
                (reply(), ProviderErrorKind::Incomplete),
                (reply().and_break(), ProviderErrorKind::Transport),
            ] {
                let (deltas, error) = ask_with_reply(kind, reply, limits()).await;
                assert_eq!(deltas, [Delta::Text("half".into())], "{kind}");
                assert_eq!(error.expect("not whole").kind(), expected, "{kind}");
            }
        }
    }
    // A later empty stop reason does not remove an earlier one.
    let kind = ProviderKind::OpenAi;
    let data = [text_and_reason(kind, "stop"), text_and_reason(kind, "")].concat();
    let (deltas, error) = ask_with_reply(kind, framed_reply(kind, &data).and_break(), limits()).await;
    assert_eq!((deltas.last(), error.is_none()), (Some(&Delta::End(StopReason::Stop)), true));
}

#[tokio::test]
async fn ollama_says_that_an_answer_is_whole_without_any_reason() {
    let kind = ProviderKind::Ollama;
    let (deltas, error) =
        ask_with_reply(kind, framed_reply(kind, &text_and_reason(kind, "")), limits()).await;
    assert_eq!((deltas.last(), error.is_none()), (Some(&Delta::End(StopReason::Stop)), true));
}

#[tokio::test]
async fn an_unknown_reason_is_cut_and_never_shows_the_key() {
    // The key straddles the point where the reason is cut. No half of the key may remain.
    let at_the_cut = format!("{}{KEY}", "x".repeat(190));
    for kind in ProviderKind::ALL {
        for reason in [&"é".repeat(1 << 20), &at_the_cut, KEY] {
            let (deltas, error) =
                ask_with_reply(kind, framed_reply(kind, &text_and_reason(kind, reason)), limits()).await;
            let Some(Delta::End(StopReason::Other(reported_reason))) = deltas.last() else {
                panic!("{kind}: {deltas:?} {error:?}")
            };
            assert!(
                !reported_reason.is_empty() && reported_reason.len() <= 200,
                "{kind}: {} bytes",
                reported_reason.len()
            );
            assert!(!reported_reason.contains("sk-very"), "{kind}: {reported_reason}");
        }
    }
}

/// Returns an event with a list of this many items.
fn listing(kind: ProviderKind, before: &str, item: &str, after: &str, times: usize) -> Reply {
    let data = format!("{before}{}{after}", vec![item; times].join(","));
    match kind {
        ProviderKind::Ollama => Reply::new(200, "application/x-ndjson", data + "\n"),
        _ => Reply::events(format!("data: {data}\n\n")),
    }
}

#[tokio::test]
async fn a_list_without_end_is_refused() {
    let lists = [
        (ProviderKind::OpenAi, r#"{"choices":[{"delta":{"tool_calls":["#, "{}", "]}}]}", MAX_LISTED_CALLS),
        (ProviderKind::OpenAi, r#"{"choices":["#, "{}", "]}", 16),
        (ProviderKind::Gemini, r#"{"candidates":["#, "{}", "]}", 16),
        (ProviderKind::Gemini, r#"{"candidates":[{"content":{"parts":["#, "{}", "]}}]}", MAX_LISTED_CALLS),
        (
            ProviderKind::Ollama,
            r#"{"message":{"tool_calls":["#,
            r#"{"function":{"name":"t","arguments":{}}}"#,
            "]}}",
            MAX_LISTED_CALLS,
        ),
    ];
    let once = ProviderLimits { retries: 0, ..limits() };
    for (kind, before, item, after, max_items) in lists {
        let (deltas, error) =
            ask_with_reply(kind, listing(kind, before, item, after, max_items + 1), limits()).await;
        assert!(deltas.is_empty(), "{kind}");
        assert_too_large(error);
        let (_, error) = ask_with_reply(kind, listing(kind, before, item, after, max_items), once).await;
        // The answer has no end, but the list itself was accepted.
        assert_eq!(error.expect("not whole").kind(), ProviderErrorKind::Incomplete, "{kind} {before}");
    }
}

#[tokio::test]
async fn pieces_of_calls_count_though_they_say_nothing() {
    let small_limits = ProviderLimits { response_bytes: 64 * 1024, ..limits() };
    let empty = events(&[json!({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]})]);
    let (deltas, error) =
        ask_with_reply(ProviderKind::OpenAi, Reply::events("").and_for_ever(empty.repeat(100)), small_limits)
            .await;
    assert_eq!(deltas.len(), small_limits.response_bytes / 32);
    assert_too_large(error);
}
