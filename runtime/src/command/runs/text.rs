//! Formats texts about a run for a person.

use std::fmt::Write as _;

use portcullis_runs::{
    RunId, StoredState, all_rows,
    store::{ApprovalFilter, PageRequest, Run, RunStore, StartedCall, Step},
};

use super::time;
use crate::{
    error::CliError,
    output::{table, text},
};

/// Formats a run with its steps, calls and questions, its status in a word, and the process that drives it if
/// that is known here.
pub(super) async fn run(
    store: &dyn RunStore,
    id: &RunId,
    run: &Run,
    (word, process): (&str, Option<u32>),
) -> Result<String, CliError> {
    let summary = &run.summary;
    let state = StoredState::parse(run.state.as_str(), id)?;
    let labels = if summary.labels.is_empty() { "nothing".to_owned() } else { summary.labels.join(", ") };
    let mut out = String::new();
    for (name, value) in [
        ("run", summary.id.clone()),
        ("status", word.to_owned()),
        ("process", process.map_or_else(|| "none here".to_owned(), |id| id.to_string())),
        ("workspace", summary.workspace.clone()),
        ("begun", time(summary.created)),
        ("last step", time(summary.updated)),
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
            [call.call.clone(), time(call.started_at), call.tool.clone(), outcome(call).to_owned()]
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
                time(approval.created),
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
    [ordinal.to_string(), time(record.started_at), record.kind, format!("{took} ms"), record.summary]
}

/// Returns how a call ended, as far as the store knows.
fn outcome(call: &StartedCall) -> &'static str {
    match &call.result {
        None => "begun",
        // The stored result is the model's view of it. The kind of error is in the audit log.
        Some(result) if result.as_str().contains("\"Err\"") => "failed",
        Some(_) => "finished",
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
    pub(super) async fn news(&mut self, store: &dyn RunStore, id: &RunId) -> Result<String, CliError> {
        let mut out = String::new();
        let calls = all_rows(|request| store.started_calls(id.as_str(), request)).await?;
        for call in calls {
            let has_ended = call.finished.is_some();
            if self.calls.get(&call.call) != Some(&has_ended) {
                let (at, tool) = (time(call.finished.unwrap_or(call.started_at)), text::inline(&call.tool));
                let _ = writeln!(out, "{at}  {tool} {}", outcome(&call));
                self.calls.insert(call.call, has_ended);
            }
        }
        let page = store.steps(id.as_str(), PageRequest::after(self.last_step, u32::MAX)).await?;
        for step in page.items {
            self.last_step = step.ordinal;
            let (at, kind) = (time(step.record.finished), step.record.kind);
            let _ = writeln!(out, "{at}  {kind}: {}", text::inline(&step.record.summary));
        }
        Ok(out)
    }
}
