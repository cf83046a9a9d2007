//! Golden files of all formats over one script, and rules that apply to every format.

use std::collections::BTreeSet;

use portcullis_agent::{AgentEnd, AgentEvent};
use portcullis_types::{ToolEvent, ToolOutput};
use serde_json::{Value, json};

use super::{
    EventFormat, EventFormatKind, HsafaEvents, MAX_OPEN_CALLS, MAX_PARTIAL_ARGUMENT_BYTES,
    script::{SECRET, call, end, requested, runs, tool},
};

/// Returns the script's lines in a format, with new state for each run.
fn lines(format: EventFormatKind) -> String {
    let of_run = |run: Vec<AgentEvent>| -> String {
        let mut format = format.begin();
        run.iter().map(|event| format.lines(event)).collect()
    };
    runs().into_iter().map(of_run).collect()
}

#[track_caller]
fn check(format: EventFormatKind, golden: &str) {
    let lines = lines(format);
    for (n, (line, golden)) in lines.lines().zip(golden.lines()).enumerate() {
        assert_eq!(line, golden, "line {} of {format}", n + 1);
    }
    assert_eq!(lines, golden, "{format}");
}

#[test]
fn the_script_reads_in_the_words_of_everruns() {
    check(EventFormatKind::Everruns, include_str!("golden/everruns.jsonl"));
}

#[test]
fn the_script_reads_in_the_words_of_yoagent() {
    check(EventFormatKind::Yoagent, include_str!("golden/yoagent.jsonl"));
}

#[test]
fn the_script_reads_in_the_words_of_hsafa() {
    check(EventFormatKind::Hsafa, include_str!("golden/hsafa.jsonl"));
}

#[test]
fn the_script_has_every_event_and_every_end() {
    let script: BTreeSet<&str> = runs().iter().flatten().map(name).collect();
    let all = [
        "AgentStart",
        "TurnStart",
        "TextDelta",
        "ThinkingDelta",
        "MessageEnd",
        "Requested",
        "ArgumentsDelta",
        "ApprovalRequested",
        "ApprovalResolved",
        "Started",
        "Heartbeat",
        "Progress",
        "Update",
        "Pending",
        "Finished",
        "ToolEnd",
        "Steered",
        "TurnEnd",
        "Answer",
        "MaxIterations",
        "Length",
        "Repeated",
        "Cancelled",
        "Provider",
        "Internal",
    ];
    assert_eq!(script, BTreeSet::from(all));
}

/// Returns the name of an event. There is no `_` arm, so a new event does not compile until it is added here.
/// The list above and the script then need it too.
fn name(event: &AgentEvent) -> &'static str {
    match event {
        AgentEvent::AgentStart { .. } => "AgentStart",
        AgentEvent::TurnStart { .. } => "TurnStart",
        AgentEvent::TextDelta { .. } => "TextDelta",
        AgentEvent::ThinkingDelta { .. } => "ThinkingDelta",
        AgentEvent::MessageEnd { .. } => "MessageEnd",
        AgentEvent::Tool(ToolEvent::Requested { .. }) => "Requested",
        AgentEvent::Tool(ToolEvent::ArgumentsDelta { .. }) => "ArgumentsDelta",
        AgentEvent::Tool(ToolEvent::ApprovalRequested { .. }) => "ApprovalRequested",
        AgentEvent::Tool(ToolEvent::ApprovalResolved { .. }) => "ApprovalResolved",
        AgentEvent::Tool(ToolEvent::Started { .. }) => "Started",
        AgentEvent::Tool(ToolEvent::Heartbeat { .. }) => "Heartbeat",
        AgentEvent::Tool(ToolEvent::Progress { .. }) => "Progress",
        AgentEvent::Tool(ToolEvent::Update { .. }) => "Update",
        AgentEvent::Tool(ToolEvent::Pending { .. }) => "Pending",
        AgentEvent::Tool(ToolEvent::Finished { .. }) => "Finished",
        AgentEvent::ToolEnd { .. } => "ToolEnd",
        AgentEvent::Steered { .. } => "Steered",
        AgentEvent::TurnEnd { .. } => "TurnEnd",
        AgentEvent::AgentEnd { end } => match end {
            AgentEnd::Answer { .. } => "Answer",
            AgentEnd::MaxIterations { .. } => "MaxIterations",
            AgentEnd::Length { .. } => "Length",
            AgentEnd::Repeated { .. } => "Repeated",
            AgentEnd::Cancelled => "Cancelled",
            AgentEnd::Provider { .. } => "Provider",
            AgentEnd::Internal { .. } => "Internal",
        },
    }
}

#[test]
fn operator_only_error_text_is_in_no_event_form() {
    let planted = runs().iter().flatten().filter(|event| format!("{event:?}").contains(SECRET)).count();
    assert_eq!(planted, 3, "a tool's error, a provider's failure, an end of our own");
    for format in EventFormatKind::ALL {
        assert!(!lines(format).contains(SECRET), "{format}");
    }
}

#[test]
fn every_line_is_an_object_with_a_type() {
    for format in EventFormatKind::ALL {
        for line in lines(format).lines() {
            let value: Value = serde_json::from_str(line).expect("JSON");
            assert!(value["type"].is_string(), "{line}");
        }
        assert_eq!(format.as_str().parse(), Ok(format));
    }
    let unknown = "everyone".parse::<EventFormatKind>().expect_err("no such format");
    assert_eq!(unknown.to_string(), "unknown event format `everyone`; use everruns, yoagent or hsafa");
}

/// Returns the `tool.streaming` events of a call with these pieces of arguments.
fn streamed(pieces: impl Iterator<Item = String>) -> Vec<Value> {
    let mut format = HsafaEvents::default();
    let events = pieces.map(|delta| {
        tool(ToolEvent::ArgumentsDelta { call_id: "c".into(), tool: "file_write".into(), delta })
    });
    events.flat_map(|event| format.values(&event)).filter(|value| value["type"] == "tool.streaming").collect()
}

#[test]
fn long_arguments_are_not_sent_over_and_over() {
    let pieces = 20_000;
    let begin = std::iter::once(r#"{"content":""#.to_owned());
    let values = streamed(begin.chain((0..pieces).map(|_| "ten bytes ".to_owned())));
    assert_eq!(values.len(), pieces + 1, "each piece has an event");
    let partial_lengths: Vec<usize> =
        values.iter().filter_map(|value| value["partialArgs"]["content"].as_str()).map(str::len).collect();
    assert!(partial_lengths.windows(2).all(|pair| pair[0] < pair[1]), "{partial_lengths:?}");
    assert!(*partial_lengths.last().expect("some") <= MAX_PARTIAL_ARGUMENT_BYTES);
    let sent: usize = partial_lengths.iter().sum();
    assert!(sent < 12 * MAX_PARTIAL_ARGUMENT_BYTES, "{sent} bytes, where each piece would make 200 MB");
}

#[test]
fn events_of_untracked_calls_are_still_reported() {
    for format in EventFormatKind::ALL {
        let mut format = format.begin();
        let ids: Vec<String> = (0..MAX_OPEN_CALLS + 10).map(|n| format!("c{n}")).collect();
        let mut lines = String::new();
        for id in &ids {
            let arriving =
                ToolEvent::ArgumentsDelta { call_id: id.clone(), tool: "t".into(), delta: "{".into() };
            lines += &format.lines(&tool(arriving));
        }
        for id in &ids {
            lines += &format.lines(&requested(&call(id, "t", "{}")));
            lines += &format.lines(&tool(ToolEvent::Progress { call_id: id.clone(), text: "on".into() }));
        }
        for id in &ids {
            lines += &format.lines(&end(id, "t", Ok(ToolOutput::structured(json!({"id": id})))));
        }
        for id in ids.iter().rev().take(20) {
            assert!(lines.matches(&format!("\"{id}\"")).count() >= 3, "{id}");
        }
    }
}
