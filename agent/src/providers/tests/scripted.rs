//! The scripted provider.

use super::*;
use crate::{ProviderErrorKind, ScriptError, ScriptedProvider, StopReason, Usage};

fn hello() -> ModelRequest {
    ModelRequest { tools: vec![tool()], ..request(vec![Message::user("Hello there")]) }
}

#[tokio::test]
async fn a_script_answers_turn_by_turn() {
    let script = r#"
        # The model thinks, speaks, and asks.
        {"thinking": "hm"}
        {"text": "I read."}
        {"call": {"index": 0, "id": "a", "name": "file_"}}
        {"call": {"index": 0, "name": "read", "arguments": "{}"}}
        {"usage": {"input_tokens": 1, "output_tokens": 2}}
        {"end": "tool_calls"}

        {"text": "cut"}
        {"end": "length"}
        {"end": {"other": "tired"}}
    "#;
    let provider = ScriptedProvider::from_lines(script).expect("a script");
    assert_eq!(provider.turns_left(), 3);
    assert_eq!(
        answer(&provider, hello()).await,
        [
            Delta::Thinking("hm".into()),
            Delta::Text("I read.".into()),
            piece(0, Some("a"), Some("file_"), None),
            piece(0, None, Some("read"), Some("{}")),
            Delta::Usage(Usage { input_tokens: 1, output_tokens: 2 }),
            Delta::End(StopReason::ToolCalls),
        ]
    );
    assert_eq!(answer(&provider, hello()).await, [Delta::Text("cut".into()), Delta::End(StopReason::Length)]);
    assert_eq!(answer(&provider, hello()).await, [Delta::End(StopReason::Other("tired".into()))]);
    assert_eq!(provider.requests().len(), 3);
}

#[tokio::test]
async fn a_script_that_is_over_says_so() {
    let provider = ScriptedProvider::new().then([Delta::End(StopReason::Stop)]);
    answer(&provider, hello()).await;
    for _ in 0..2 {
        let error = refusal(&provider, hello()).await;
        assert_eq!(error.kind(), ProviderErrorKind::Configuration);
        let cause = error.source().and_then(<dyn Error>::downcast_ref::<ScriptError>);
        assert!(matches!(cause, Some(ScriptError::Over { turns: 1 })), "{error:?}");
    }
}

#[tokio::test]
async fn a_script_can_fail_and_break_off() {
    let script = r#"
        {"fail": {"kind": "rate_limited", "message": "slow down"}}
        {"text": "half"}
        {"fail": {"kind": "transport", "message": "broke"}}
        {"text": "half"}
        "cut"
    "#;
    let provider = ScriptedProvider::from_lines(script).expect("a script");
    let error = refusal(&provider, hello()).await;
    assert_eq!((error.kind(), error.to_string().as_str()), (ProviderErrorKind::RateLimited, "slow down"));
    let (deltas, error) = drain(provider.stream(hello()).await.expect("begins")).await;
    assert_eq!(deltas, [Delta::Text("half".into())]);
    assert_eq!(error.expect("an error").kind(), ProviderErrorKind::Transport);
    let (deltas, error) = drain(provider.stream(hello()).await.expect("begins")).await;
    assert_eq!(deltas, [Delta::Text("half".into())]);
    assert!(error.is_none(), "it just stops");
}

#[tokio::test]
async fn a_script_holds_a_request_to_what_it_expects() {
    let fits = [
        r#"{"expect": {}}"#,
        r#"{"expect": {"model": "", "messages": 1, "tools": ["file_read"]}}"#,
        r#"{"expect": {"last": {"role": "user", "contains": "there", "is_error": false}}}"#,
    ];
    for line in fits {
        let provider = ScriptedProvider::from_lines(&format!("{line}\n{{\"end\": \"stop\"}}")).expect(line);
        answer(&provider, hello()).await;
    }
    let misses = [
        r#"{"expect": {"model": "m"}}"#,
        r#"{"expect": {"messages": 2}}"#,
        r#"{"expect": {"tools": []}}"#,
        r#"{"expect": {"last": {"role": "tool"}}}"#,
        r#"{"expect": {"last": {"is_error": true}}}"#,
        r#"{"expect": {"last": {"contains": "elsewhere"}}}"#,
    ];
    for line in misses {
        let provider = ScriptedProvider::from_lines(&format!("{line}\n{{\"end\": \"stop\"}}")).expect(line);
        let error = refusal(&provider, hello()).await;
        let cause = error.source().and_then(<dyn Error>::downcast_ref::<ScriptError>);
        assert!(matches!(cause, Some(ScriptError::Unexpected { turn: 1, .. })), "{line}: {error:?}");
    }
}

#[test]
fn a_wrong_script_is_refused_at_its_line() {
    let line = |script: &str| match ScriptedProvider::from_lines(script) {
        Err(ScriptError::Line { line, .. } | ScriptError::Misplaced { line }) => line,
        other => panic!("{other:?}"),
    };
    assert_eq!(line("{\"text\": \"a\"}\nnot json"), 2);
    assert_eq!(line("{\"txt\": \"a\"}"), 1);
    assert_eq!(line("{\"end\": \"stopp\"}"), 1);
    assert_eq!(line("{\"call\": {\"index\": 0, \"argument\": \"\"}}"), 1);
    assert_eq!(line("{\"fail\": {\"kind\": \"x\", \"message\": \"\"}}"), 1);
    assert_eq!(line("{\"expect\": {\"mesages\": 1}}"), 1);
    assert_eq!(line("# note\n\n{\"text\": \"a\"}\n{\"expect\": {}}"), 4);
    let script = ScriptedProvider::from_lines("{\"end\": \"stop\"}\n{\"text\": \"a\"}");
    assert!(matches!(script, Err(ScriptError::NotFinished)));
}

#[tokio::test]
async fn recorded_provider_answer_is_replayed() {
    let openai = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let ollama = "{\"message\":{\"content\":\"b\"},\"done\":true,\"done_reason\":\"stop\"}";
    let recording = "data: {\"choices\":[{\"delta\":{\"content\":\"c\"}}]}\n\n";
    let provider = ScriptedProvider::new()
        .then_recorded(ProviderKind::OpenAi, openai.as_bytes())
        .then_recorded(ProviderKind::Ollama, ollama.as_bytes())
        .then_recorded(ProviderKind::OpenAi, recording.as_bytes());
    let end = Delta::End(StopReason::Stop);
    assert_eq!(answer(&provider, hello()).await, [Delta::Text("a".into()), end.clone()]);
    assert_eq!(answer(&provider, hello()).await[0], Delta::Text("b".into()));
    let (deltas, error) = drain(provider.stream(hello()).await.expect("begins")).await;
    assert_eq!(deltas, [Delta::Text("c".into())]);
    assert_eq!(error.expect("cut off").kind(), ProviderErrorKind::Incomplete);
}

#[tokio::test]
async fn a_script_stops_when_it_is_cancelled() {
    let provider = ScriptedProvider::new()
        .then([Delta::Text("a".into()), Delta::End(StopReason::Stop)])
        .with_pace(Duration::from_secs(1000));
    let model_request = hello();
    let cancel = model_request.cancel.clone();
    let stream = provider.stream(model_request).await.expect("begins");
    let ((deltas, error), ()) = futures_util::join!(drain(stream), async { cancel.cancel() });
    assert!(deltas.is_empty());
    assert_eq!(error.expect("cancelled").kind(), ProviderErrorKind::Cancelled);
    let model_request = hello();
    model_request.cancel.cancel();
    assert_eq!(refusal(&provider, model_request).await.kind(), ProviderErrorKind::Cancelled);
}
