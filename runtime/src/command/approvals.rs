//! `portcullis approvals`: lists the questions of runs, and answers them.

use std::process::ExitCode;

use portcullis_runs::{
    now,
    store::{
        ApprovalDecision, ApprovalFilter, ApprovalStatus, Entity, Json, RunStore, StoreError, StoredAnswer,
        StoredApproval,
    },
};
use serde_json::{Map, Value, json as value};

use super::runs::with_store;
use crate::{
    cli::{ApproveCallOptions, CommonOptions, DenyCallOptions, ListApprovalsOptions, OneApprovalOptions},
    error::CliError,
    output::{list::List, stream, text},
};

/// The channel of an answer, as the store records it.
const VIA: &str = "portcullis approvals";

/// Lists questions.
pub(crate) fn list(common: &CommonOptions, options: &ListApprovalsOptions) -> Result<ExitCode, CliError> {
    with_store(common, &options.store, async |store| {
        let status = (!options.all).then_some(ApprovalStatus::Waiting);
        let filter = ApprovalFilter { run: None, status };
        let mut approvals = match &store {
            Some(store) => {
                portcullis_runs::all_rows(|request| store.approvals(filter.clone(), request)).await?
            }
            None => Vec::new(),
        };
        if !options.all {
            // The store still lists an expired question as waiting until a sweep marks it.
            approvals.retain(|approval| approval.status_at(now()) == ApprovalStatus::Waiting);
        }
        let list = List {
            items: approvals,
            empty_text: "no call waits for an approval\n",
            head: ["question", "run", "at", "tool", "status"],
            row: |approval| {
                let StoredApproval { request, run, created, .. } = approval;
                let at = super::runs::format_timestamp(*created);
                [request.id.clone(), run.clone(), at, request.tool.clone(), status_word(approval).to_owned()]
            },
            id: |approval| &approval.request.id,
            as_json: |approval| Ok(as_json(approval)),
        };
        list.write(&options.output)
    })
}

/// Shows a question in full.
pub(crate) fn show(common: &CommonOptions, options: &OneApprovalOptions) -> Result<ExitCode, CliError> {
    with_question(common, options, async |_, approval| {
        let mut out = approval.request.question.clone();
        if !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&format!("status: {}\n", status_word(&approval)));
        if let Some(expires) = approval.request.expires {
            out.push_str(&format!("expires: {}\n", super::runs::format_timestamp(expires)));
        }
        if let Some(StoredAnswer { by, via, reason, .. }) = &approval.answer {
            let reason =
                reason.as_ref().map(|reason| format!(": {}", text::inline(reason))).unwrap_or_default();
            out.push_str(&format!("answered by {} ({}){reason}\n", text::inline(by), text::inline(via)));
        }
        // The question was escaped and framed when it was asked, but another program may have written the
        // store.
        stream::write_output(&text::for_terminal(&out))
    })
}

/// Lets a call run.
pub(crate) fn approve(common: &CommonOptions, options: &ApproveCallOptions) -> Result<ExitCode, CliError> {
    let edited_arguments = match &options.arguments {
        None => None,
        Some(text) => {
            let is_object = serde_json::from_str::<Map<String, Value>>(text).is_ok();
            let arguments =
                is_object.then(|| Json::from_text(text.as_str())).ok_or(CliError::EditedArguments)?;
            Some(arguments?)
        }
    };
    answer(common, &options.question, ApprovalDecision::Approve, edited_arguments, None)
}

/// Refuses a call.
pub(crate) fn deny(common: &CommonOptions, options: &DenyCallOptions) -> Result<ExitCode, CliError> {
    answer(common, &options.question, ApprovalDecision::Deny, None, options.reason.clone())
}

fn answer(
    common: &CommonOptions,
    options: &OneApprovalOptions,
    decision: ApprovalDecision,
    edited_arguments: Option<Json>,
    reason: Option<String>,
) -> Result<ExitCode, CliError> {
    with_question(common, options, async |store, approval| {
        // The kernel vouches for the user id. The caller could choose a name.
        let by = format!("user {}", rustix::process::getuid().as_raw());
        let answer =
            StoredAnswer { decision, by, via: VIA.to_owned(), edited_arguments, reason, decided: now() };
        let answered = store.answer_approval(&options.id, &approval.request.hash, answer).await?;
        let (tool, run) = (text::inline(&answered.request.tool), text::inline(&answered.run));
        stream::write_output(&format!("{}: the call of {tool} in {run}\n", answered.status))
    })
}

fn with_question(
    common: &CommonOptions,
    options: &OneApprovalOptions,
    work: impl AsyncFnOnce(&dyn RunStore, StoredApproval) -> Result<(), CliError>,
) -> Result<ExitCode, CliError> {
    with_store(common, &options.store, async |store| {
        let missing = || StoreError::NotFound { entity: Entity::Approval, id: options.id.clone() };
        let store = store.ok_or_else(missing)?;
        let approval = store.approval(&options.id).await?;
        work(&*store, approval).await
    })
}

fn status_word(approval: &StoredApproval) -> &'static str {
    approval.status_at(now()).as_str()
}

fn as_json(approval: &StoredApproval) -> Value {
    let StoredApproval { request, run, created, answer, .. } = approval;
    value!({
        "id": request.id, "run": run, "call": request.call, "tool": request.tool, "question": request.question,
        "hash": request.hash, "created": created, "expires": request.expires, "status": status_word(approval),
        "by": answer.as_ref().map(|answer| &answer.by),
    })
}
