//! The runs behind the formats' golden files. They contain every event and every end.

use std::{sync::Arc, time::Duration};

use portcullis_agent::{AgentEnd, AgentEvent, ProviderErrorKind, StopReason, Usage};
use portcullis_types::{
    Message, ToolCall, ToolError, ToolErrorKind, ToolEvent, ToolOutcome, ToolOutput, ToolResult,
};
use serde_json::{Value, json};

/// A detail for the operator. The script contains it, and no format may show it.
pub(super) const SECRET: &str = "hunter2.db.internal.example";

pub(super) fn runs() -> Vec<Vec<AgentEvent>> {
    let ends = [
        AgentEnd::MaxIterations { limit: 10 },
        AgentEnd::Length { text: "The first half of".into() },
        AgentEnd::Repeated { tool: "echo".into() },
        AgentEnd::Cancelled,
        AgentEnd::Provider { kind: ProviderErrorKind::RateLimited, message: format!("429 from {SECRET}") },
        AgentEnd::Internal { message: format!("no connection to {SECRET}") },
    ];
    let short = ends.into_iter().enumerate().map(|(n, end)| cut_short(&format!("run-{}", n + 2), end));
    [complete_run()].into_iter().chain(short).collect()
}

/// Returns a run of three turns that ends with an answer.
fn complete_run() -> Vec<AgentEvent> {
    let start = AgentEvent::AgentStart { agent_id: "agent".into(), run_id: "run-1".into() };
    let end = AgentEvent::AgentEnd { end: AgentEnd::Answer { text: "It is deployed.".into() } };
    [vec![start], streamed_turn(), refused_turn(), last_turn(), vec![end]].concat()
}

/// Returns a turn with three calls: one streams its arguments, one fails internally, and one has a truncated
/// result.
fn streamed_turn() -> Vec<AgentEvent> {
    let mut events = vec![
        AgentEvent::TurnStart { iteration: 1 },
        AgentEvent::ThinkingDelta { delta: "They want it deployed.".into() },
        AgentEvent::TextDelta { delta: "I deploy ".into() },
        AgentEvent::TextDelta { delta: "it. 🚀".into() },
    ];
    // The pieces end before a value and within a string, so formats with partial arguments must handle both
    // cases.
    for delta in [r#"{"env":"#, r#" "produ"#, r#"ction"}"#] {
        events.push(tool(ToolEvent::ArgumentsDelta {
            call_id: "c1".into(),
            tool: "deploy".into(),
            delta: delta.into(),
        }));
    }
    let calls = [
        call("c1", "deploy", r#"{"env": "production"}"#),
        call("c2", "lookup", r#"{"city":"Paris"}"#),
        call("c3", "file_read", r#"{"path":"/shared/long"}"#),
    ];
    events.push(assistant_message("I deploy it. 🚀", &calls));
    events.extend(calls.iter().map(requested));
    events.push(tool(ToolEvent::ApprovalRequested { call_id: "c1".into() }));
    events.push(tool(ToolEvent::ApprovalResolved { call_id: "c1".into(), approved: true }));
    events.extend(calls.iter().map(started));
    // While `c1` runs, it sends each kind of report.
    let elapsed = Duration::from_secs(5);
    events.push(tool(ToolEvent::Heartbeat { call_id: "c1".into(), elapsed }));
    let partial = ToolOutput::text("[1/4] Building image...").with_details(json!({"step": 1, "total": 4}));
    events.push(tool(ToolEvent::Update { call_id: "c1".into(), partial }));
    events.push(tool(ToolEvent::Progress { call_id: "c1".into(), text: "Almost done...".into() }));
    // Only this call also reports `Finished`, which no format shows.
    events.push(tool(ToolEvent::Finished {
        call_id: "c2".into(),
        tool: "lookup".into(),
        error: Some(ToolErrorKind::Internal),
        is_pending: false,
        duration: Duration::from_millis(3),
        bytes: 0,
        truncated: false,
    }));
    // `c2` and `c3` end before `c1`. The error of `c2` contains the secret.
    events.push(end("c2", "lookup", Err(ToolError::internal(format!("no answer of {SECRET}")))));
    events.push(truncated("c3", "file_read"));
    let deployed = ToolOutput::text("Successfully deployed to production")
        .with_details(json!({"env": "production", "status": "success"}));
    events.push(end("c1", "deploy", Ok(deployed)));
    let usage = Some(Usage { input_tokens: 100, output_tokens: 20 });
    events.push(AgentEvent::TurnEnd { iteration: 1, stop: StopReason::ToolCalls, usage });
    events
}

/// Returns a turn with wrong arguments, a refusal, a result that comes later, a result that comes in time,
/// and a skipped call.
fn refused_turn() -> Vec<AgentEvent> {
    let mut events = vec![AgentEvent::TurnStart { iteration: 2 }];
    let calls = [
        call("c4", "file_read", "{}"),
        call("c5", "shell_exec", r#"{"command":"rm -rf /"}"#),
        call("c6", "confirmAction", r#"{"message":"Confirm booking?"}"#),
        call("c7", "fetchExternalData", ""),
        call("c8", "echo", "not json"),
    ];
    events.push(assistant_message("", &calls));
    events.extend(calls.iter().map(requested));
    let wrong = ToolError::invalid_arguments("missing required field 'path' in arguments");
    events.push(end("c4", "file_read", Err(wrong)));
    events.push(tool(ToolEvent::ApprovalRequested { call_id: "c5".into() }));
    events.push(tool(ToolEvent::ApprovalResolved { call_id: "c5".into(), approved: false }));
    let refused = ToolError::denied("the call was not approved").with_hint("ask for something else");
    events.push(end("c5", "shell_exec", Err(refused)));
    events.push(tool(ToolEvent::Pending {
        call_id: "c6".into(),
        id: "c6".into(),
        expires: 1_800_000_000_000,
    }));
    // `c6` stays pending, because its result is submitted later.
    let pending = ToolOutcome::Pending { id: "c6".into(), expires: 1_800_000_000_000 };
    events.push(end("c6", "confirmAction", pending));
    events.push(tool(ToolEvent::Pending {
        call_id: "c7".into(),
        id: "c7".into(),
        expires: 1_800_000_000_000,
    }));
    // `c7` was pending too, but its result came in time.
    events.push(end("c7", "fetchExternalData", Ok(ToolOutput::structured(json!({"source": "pm-api"})))));
    // A person's message makes the loop skip the remaining call.
    let skipped = ToolError::cancelled("Skipped due to queued user message.");
    events.push(end("c8", "echo", Err(skipped)));
    events.push(AgentEvent::Steered { messages: Arc::new(vec![Message::user("Stop, that is enough.")]) });
    events.push(AgentEvent::TurnEnd { iteration: 2, stop: StopReason::ToolCalls, usage: None });
    events
}

/// Returns the answer of a provider that does not stream.
fn last_turn() -> Vec<AgentEvent> {
    let usage = Some(Usage { input_tokens: 200, output_tokens: 5 });
    vec![
        AgentEvent::TurnStart { iteration: 3 },
        assistant_message("It is deployed.", &[]),
        AgentEvent::TurnEnd { iteration: 3, stop: StopReason::Stop, usage },
    ]
}

/// Returns a run whose model is cut off within a text and a call.
fn cut_short(run_id: &str, end: AgentEnd) -> Vec<AgentEvent> {
    vec![
        AgentEvent::AgentStart { agent_id: "agent".into(), run_id: run_id.into() },
        AgentEvent::TurnStart { iteration: 1 },
        AgentEvent::TextDelta { delta: "The first half of".into() },
        tool(ToolEvent::ArgumentsDelta {
            call_id: "cut".into(),
            tool: "echo".into(),
            delta: r#"{"message":"nev"#.into(),
        }),
        AgentEvent::AgentEnd { end },
    ]
}

pub(super) fn call(id: &str, tool: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), tool: tool.into(), arguments: arguments.into() }
}

pub(super) fn requested(call: &ToolCall) -> AgentEvent {
    let ToolCall { id, tool: name, arguments } = call.clone();
    tool(ToolEvent::Requested { call_id: id, tool: name, arguments })
}

pub(super) fn tool(event: ToolEvent) -> AgentEvent {
    AgentEvent::Tool(event)
}

pub(super) fn end(id: &str, tool: &str, outcome: impl Into<ToolOutcome>) -> AgentEvent {
    AgentEvent::ToolEnd { result: Arc::new(result(id, tool, outcome.into())) }
}

fn started(call: &ToolCall) -> AgentEvent {
    tool(ToolEvent::Started { call_id: call.id.clone(), tool: call.tool.clone() })
}

fn assistant_message(text: &str, calls: &[ToolCall]) -> AgentEvent {
    AgentEvent::MessageEnd { message: Arc::new(Message::assistant(text, calls.to_vec())) }
}

/// Returns a result in the registry's form, which has `details` beside the output.
fn result(id: &str, tool: &str, mut outcome: ToolOutcome) -> ToolResult {
    let details = match &mut outcome {
        ToolOutcome::Output(output) => std::mem::take(&mut output.details),
        ToolOutcome::Error(_) | ToolOutcome::Pending { .. } => Value::Null,
    };
    ToolResult {
        call_id: id.into(),
        tool: tool.into(),
        outcome,
        details,
        truncated: false,
        original_bytes: 0,
        duration: Duration::from_millis(3),
    }
}

fn truncated(id: &str, tool: &str) -> AgentEvent {
    let output = ToolOutput::text("the beginning\n\n[output truncated: 100000 bytes]");
    let mut result = result(id, tool, ToolOutcome::Output(output));
    result.details = json!({"output_id": "out_1"});
    result.truncated = true;
    result.original_bytes = 100_000;
    AgentEvent::ToolEnd { result: Arc::new(result) }
}
