//! [`RunExport`]: everything that the store has about a run, as one document.

use std::collections::HashMap;

use portcullis_store::{
    ApprovalDecision, ApprovalFilter, Json, RunStore, RunSummary, StartedCall, StepRecord, StoredAnswer,
    StoredApproval, StoredMessage,
};
use portcullis_types::Message;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{RunError, RunId, pages::all_rows};

/// The format of the document.
const FORMAT: u32 = 1;

/// Everything that the store has about a run. Times are milliseconds since the Unix epoch. States, messages,
/// arguments and results are copied as they are stored.
#[derive(Debug, Serialize)]
pub struct RunExport {
    format: u32,
    run: ExportedRun,
    state: Box<RawValue>,
    messages: Vec<Box<RawValue>>,
    steps: Vec<ExportedStep>,
    calls: Vec<ExportedCall>,
    approvals: Vec<ExportedApproval>,
}

#[derive(Debug, Serialize)]
struct ExportedRun {
    id: String,
    agent: String,
    workspace: String,
    status: &'static str,
    created: i64,
    updated: i64,
    labels: Vec<String>,
    cancel_requested: Option<i64>,
}

#[derive(Debug, Serialize)]
struct ExportedStep {
    kind: String,
    begun: i64,
    finished: i64,
    summary: String,
}

/// A call that has begun.
#[derive(Debug, Serialize)]
struct ExportedCall {
    id: String,
    tool: String,
    arguments: Box<RawValue>,
    may_repeat: bool,
    attempts: i64,
    begun: i64,
    finished: Option<i64>,
    result: Option<Box<RawValue>>,
    labels: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ExportedApproval {
    id: String,
    call: String,
    tool: String,
    question: String,
    hash: String,
    created: i64,
    expires: Option<i64>,
    status: &'static str,
    decision: Option<ExportedDecision>,
}

#[derive(Debug, Serialize)]
struct ExportedDecision {
    verdict: &'static str,
    by: String,
    via: String,
    edited_arguments: Option<Box<RawValue>>,
    reason: Option<String>,
    decided: i64,
}

impl RunExport {
    /// Reads a whole run. If a process drives the run at the same time, the parts of the document may show
    /// different steps.
    ///
    /// # Errors
    /// [`RunError::Store`], [`RunError::Malformed`].
    pub async fn read(store: &dyn RunStore, id: &RunId) -> Result<Self, RunError> {
        let run = store.run(id.as_str()).await?;
        let messages = all_rows(|request| store.messages(id.as_str(), request)).await?;
        let steps = all_rows(|request| store.steps(id.as_str(), request)).await?;
        let mut started_calls = all_rows(|request| store.started_calls(id.as_str(), request)).await?;
        // Sort by the order in which the model asked for the calls, which may differ from the order in which
        // they ended.
        let request_order = call_order(&messages, id)?;
        started_calls.sort_by_key(|started| request_order.get(&started.call).copied().unwrap_or(usize::MAX));
        let filter = ApprovalFilter { run: Some(id.to_string()), ..ApprovalFilter::default() };
        let mut approvals = all_rows(|request| store.approvals(filter.clone(), request)).await?;
        // The store lists the newest first.
        approvals.reverse();
        // Omit the rest of the row, which is bookkeeping of the store, such as the lease.
        let RunSummary {
            id: run_id,
            agent,
            workspace,
            created,
            updated,
            status,
            labels,
            cancel_requested_at,
            ..
        } = run.summary;
        Ok(Self {
            format: FORMAT,
            run: ExportedRun {
                id: run_id,
                agent,
                workspace,
                status: status.as_str(),
                created,
                updated,
                labels,
                cancel_requested: cancel_requested_at,
            },
            state: raw(id, "state", run.state)?,
            messages: messages
                .into_iter()
                .map(|message| raw(id, "message", message.body))
                .collect::<Result<_, _>>()?,
            steps: steps.into_iter().map(|step| ExportedStep::from_record(step.record)).collect(),
            calls: started_calls
                .into_iter()
                .map(|call| ExportedCall::from_started(id, call))
                .collect::<Result<_, _>>()?,
            approvals: approvals
                .into_iter()
                .map(|approval| ExportedApproval::from_stored(id, approval))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl ExportedStep {
    fn from_record(record: StepRecord) -> Self {
        let StepRecord { kind, started_at: begun, finished, summary } = record;
        Self { kind, begun, finished, summary }
    }
}

impl ExportedCall {
    fn from_started(run: &RunId, started: StartedCall) -> Result<Self, RunError> {
        let StartedCall {
            call,
            tool,
            arguments,
            may_repeat,
            attempts,
            started_at: begun,
            finished,
            result,
            labels,
        } = started;
        Ok(Self {
            id: call,
            tool,
            arguments: raw(run, "call", arguments)?,
            may_repeat,
            attempts,
            begun,
            finished,
            result: result.map(|result| raw(run, "result", result)).transpose()?,
            labels,
        })
    }
}

impl ExportedApproval {
    fn from_stored(run: &RunId, approval: StoredApproval) -> Result<Self, RunError> {
        let StoredApproval { request, created, status, answer, run: _, agent: _ } = approval;
        Ok(Self {
            id: request.id,
            call: request.call,
            tool: request.tool,
            question: request.question,
            hash: request.hash,
            created,
            expires: request.expires,
            status: status.as_str(),
            decision: answer.map(|answer| ExportedDecision::from_answer(run, answer)).transpose()?,
        })
    }
}

impl ExportedDecision {
    fn from_answer(run: &RunId, answer: StoredAnswer) -> Result<Self, RunError> {
        let StoredAnswer { decision, by, via, edited_arguments, reason, decided } = answer;
        let verdict = match decision {
            ApprovalDecision::Approve => "approve",
            ApprovalDecision::Deny => "deny",
        };
        let edited_arguments = edited_arguments.map(|arguments| raw(run, "answer", arguments)).transpose()?;
        Ok(Self { verdict, by, via, edited_arguments, reason, decided })
    }
}

/// Copies a payload byte for byte, so that numbers and the order of keys do not change.
fn raw(run: &RunId, what: &'static str, json: Json) -> Result<Box<RawValue>, RunError> {
    RawValue::from_string(json.into_text()).map_err(|source| RunError::Malformed {
        id: run.clone(),
        kind: what,
        source,
    })
}

/// Returns the position of each call among all calls of the messages.
fn call_order(messages: &[StoredMessage], id: &RunId) -> Result<HashMap<String, usize>, RunError> {
    let mut order = HashMap::new();
    for message in messages {
        let parsed: Message = serde_json::from_str(message.body.as_str())
            .map_err(|source| RunError::Malformed { id: id.clone(), kind: "message", source })?;
        for call in parsed.tool_calls {
            let position = order.len();
            // A repeated call keeps the position of its first request.
            order.entry(call.id).or_insert(position);
        }
    }
    Ok(order)
}
