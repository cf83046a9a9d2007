//! Formats texts about a run for a person.

use std::fmt::Write as _;

use portcullis_runs::{
    RunId, StoredState, all_rows,
    store::{ApprovalFilter, Json, PageRequest, Run, RunStore, Step},
};
use portcullis_types::{ToolOutcome, ToolResult};

use super::format_timestamp;
use crate::{
    error::CliError,
    output::{table, text},
};

/// Formats a run with its steps, calls and questions, its status, and the process that drives it if
/// that is known here.
pub(super) async fn run(
    store: &dyn RunStore,
    id: &RunId,
    run: &Run,
    (status, process): (&str, Option<u32>),
) -> Result<String, CliError> {
    let summary = &run.summary;
    let state = StoredState::parse(run.state.as_str(), id)?;
    let labels = if summary.labels.is_empty() { "nothing".to_owned() } else { summary.labels.join(", ") };
    let mut out = String::new();
    for (name, value) in [
        ("run", summary.id.clone()),
        ("status", status.to_owned()),
        ("process", process.map_or_else(|| "none here".to_owned(), |id| id.to_string())),
        ("workspace", summary.workspace.clone()),
        ("begun", format_timestamp(summary.created)),
        ("last step", format_timestamp(summary.updated)),
        ("has read", labels),
        ("next", state.run.end().map_or_else(|| state.run.next_step().to_owned(), ToString::to_string)),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<10} {}", text::inline(&value));
    }
    let steps = all_rows(|request| store.steps(id.as_str(), request)).await?;
    let rows = steps.into_iter().map(step_row);
    let _ = write!(out, "\n{}", table::render(["step", "at", "kind", "took", "outcome"], rows));
    let calls = all_rows(|request| store.started_calls(id.as_str(), request)).await?;
    if !calls.is_empty() {
        let rows = calls.iter().map(|call| {
            [
                call.call.clone(),
                format_timestamp(call.started_at),
                call.tool.clone(),
                outcome(call.result.as_ref()).to_owned(),
            ]
        });
        let _ = write!(out, "\n{}", table::render(["call", "at", "tool", "outcome"], rows));
    }
    let filter = ApprovalFilter { run: Some(id.to_string()), ..ApprovalFilter::default() };
    let approvals = all_rows(|request| store.approvals(filter.clone(), request)).await?;
    if !approvals.is_empty() {
        let rows = approvals.into_iter().map(|approval| {
            let by = approval.answer.map(|answer| answer.by).unwrap_or_default();
            [
                approval.request.id,
                format_timestamp(approval.created),
                approval.request.tool,
                approval.status.to_string(),
                by,
            ]
        });
        let _ = write!(out, "\n{}", table::render(["question", "at", "tool", "status", "by"], rows));
    }
    Ok(out)
}

fn step_row(step: Step) -> [String; 5] {
    let Step { ordinal, record } = step;
    let took = record.finished.saturating_sub(record.started_at).max(0);
    [
        ordinal.to_string(),
        format_timestamp(record.started_at),
        record.kind,
        format!("{took} ms"),
        record.summary,
    ]
}

/// Returns how a call ended, as far as the store knows.
fn outcome(result: Option<&Json>) -> &'static str {
    match result {
        None => "begun",
        // The kind of an error is only in the audit log: the store has the model's view of the result.
        Some(result) => {
            match serde_json::from_str::<ToolResult>(result.as_str()).map(|result| result.outcome) {
                Ok(ToolOutcome::Output(_)) => "finished",
                Ok(ToolOutcome::Error(_)) => "failed",
                Ok(ToolOutcome::Pending { .. }) => "pending",
                Err(_) => "unreadable result",
            }
        }
    }
}

/// The part of a run that its follower has already seen.
#[derive(Debug, Default)]
pub(super) struct Follower {
    last_step: i64,
    /// The calls that were shown, and whether their end was shown too.
    calls: std::collections::BTreeMap<String, bool>,
}

impl Follower {
    /// Formats the events since the last call of this function.
    pub(super) async fn format_new_events(
        &mut self,
        store: &dyn RunStore,
        id: &RunId,
    ) -> Result<String, CliError> {
        let mut out = String::new();
        let calls = all_rows(|request| store.started_calls(id.as_str(), request)).await?;
        for call in calls {
            let has_ended = call.finished.is_some();
            if self.calls.get(&call.call) != Some(&has_ended) {
                let (at, tool) =
                    (format_timestamp(call.finished.unwrap_or(call.started_at)), text::inline(&call.tool));
                let _ = writeln!(out, "{at}  {tool} {}", outcome(call.result.as_ref()));
                self.calls.insert(call.call, has_ended);
            }
        }
        let page = store.steps(id.as_str(), PageRequest::after(self.last_step, u32::MAX)).await?;
        for step in page.items {
            self.last_step = step.ordinal;
            let (at, kind) = (format_timestamp(step.record.finished), step.record.kind);
            let _ = writeln!(out, "{at}  {kind}: {}", text::inline(&step.record.summary));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use portcullis_types::{ToolError, ToolOutput};
    use serde_json::{Value, json};

    use super::*;

    fn stored(outcome: ToolOutcome) -> Json {
        Json::of(&ToolResult {
            call_id: "call_1".to_owned(),
            tool: "file_read".to_owned(),
            outcome,
            details: Value::Null,
            truncated: false,
            original_bytes: 0,
            duration: std::time::Duration::ZERO,
        })
        .expect("encodes")
    }

    #[test]
    fn a_call_fails_by_its_outcome_and_not_by_its_text() {
        let named_like_an_error = ToolOutput::structured(json!({"Err": "a key of the tool's data"}));
        for (result, expected) in [
            (None, "begun"),
            (Some(stored(ToolOutcome::Output(named_like_an_error))), "finished"),
            (Some(stored(ToolOutcome::Error(ToolError::failed("no")))), "failed"),
            (Some(stored(ToolOutcome::Pending { id: "call_2".to_owned(), expires: 7 })), "pending"),
            (Some(Json::of(&json!({})).expect("encodes")), "unreadable result"),
        ] {
            assert_eq!(outcome(result.as_ref()), expected);
        }
    }
}
