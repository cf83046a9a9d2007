//! `portcullis runs`: lists runs, shows, follows and ends a run, and exports its stored data.

mod text;

use std::{process::ExitCode, sync::Arc, time::Duration};

use jiff::Timestamp;
use portcullis_runs::{
    RunDriver, RunExport, RunId, Runs, now,
    store::{
        ApprovalFilter, ApprovalStatus, PageRequest, RunFilter, RunStatus, RunStore, RunSummary, StoreError,
        StoredMessage,
    },
};
use portcullis_types::{Message, MessageRole};
use serde_json::json as value;

use crate::{
    cli::{CommonOptions, ListRunsOptions, OneRunOptions, StoreOptions},
    error::CliError,
    output::{json, list::List, stream},
    run_store, setup,
};

/// The interval at which the store is polled for a person who follows a run.
const POLL: Duration = Duration::from_millis(300);

/// The maximum length of the part of a prompt that a listing shows, in characters.
const MAX_PROMPT_CHARS: usize = 60;

/// Lists runs.
pub(crate) fn list(common: &CommonOptions, options: &ListRunsOptions) -> Result<ExitCode, CliError> {
    with_store(common, &options.store, async |store| {
        let (mut listed, mut after) = (Vec::new(), None);
        let limit = usize::try_from(options.last.get()).unwrap_or(usize::MAX);
        while let Some(store) = &store {
            let page =
                store.runs(RunFilter::default(), PageRequest { after, ..PageRequest::default() }).await?;
            // A page may contain no open run, so read pages until enough runs are found.
            listed.extend(page.items.into_iter().filter(|run| !options.open || !run.status.has_ended()));
            after = page.next;
            if after.is_none() || listed.len() >= limit {
                break;
            }
        }
        listed.truncate(limit);
        let mut rows = Vec::with_capacity(listed.len());
        for run in listed {
            let Some(store) = &store else { break };
            let prompt = first_prompt(&**store, &run.id).await?;
            rows.push((status_label(&**store, &run).await?, run, prompt));
        }
        let list = List {
            items: rows,
            empty_text: "no runs are stored\n",
            head: ["run", "last step", "status", "steps", "prompt"],
            row: |(word, run, prompt)| {
                let prompt: String = prompt.chars().take(MAX_PROMPT_CHARS).collect();
                [
                    run.id.clone(),
                    format_timestamp(run.updated),
                    (*word).to_owned(),
                    run.steps.to_string(),
                    prompt,
                ]
            },
            id: |(_, run, _)| &run.id,
            as_json: |(word, run, prompt)| {
                Ok(value!({
                    "id": run.id, "status": run.status.as_str(), "shown_as": word, "agent": run.agent,
                    "workspace": run.workspace, "created": run.created, "updated": run.updated,
                    "steps": run.steps, "labels": run.labels, "prompt": prompt,
                }))
            },
        };
        list.write(&options.output)
    })
}

/// Shows a run.
pub(crate) fn show(common: &CommonOptions, options: &OneRunOptions) -> Result<ExitCode, CliError> {
    let state = setup::envelope(common)?.state;
    with_run(common, options, async |store, id| {
        let run = store.run(id.as_str()).await?;
        let word = status_label(&*store, &run.summary).await?;
        let driver = run.summary.lease.as_ref().map(|(owner, _)| &**owner);
        let process = driver.and_then(|driver| RunDriver::process_id(&state, driver));
        let text = text::run(&*store, &id, &run, (word, process)).await?;
        stream::write_output(&text)
    })
}

/// Shows the steps of a run as they happen, until it ends.
pub(crate) fn watch(common: &CommonOptions, options: &OneRunOptions) -> Result<ExitCode, CliError> {
    let mut code = ExitCode::SUCCESS;
    with_run(common, options, async |store, id| {
        let mut follower = text::Follower::default();
        loop {
            // Read the run before its steps, so that all steps are shown when the run is seen to have ended.
            let run = store.run(id.as_str()).await?;
            let lines = follower.format_new_events(&*store, &id).await?;
            stream::write_output(&lines)?;
            let word = status_label(&*store, &run.summary).await?;
            if run.summary.status.has_ended() || word == INTERRUPTED {
                if run.summary.status != RunStatus::Completed {
                    code = ExitCode::FAILURE;
                }
                return stream::write_output(&format!("{word}\n"));
            }
            tokio::time::sleep(POLL).await;
        }
    })?;
    Ok(code)
}

/// Ends a run.
pub(crate) fn cancel(common: &CommonOptions, options: &OneRunOptions) -> Result<ExitCode, CliError> {
    let state = setup::envelope(common)?.state;
    with_run(common, options, async |store, id| {
        // A run that no process drives is ended here, which needs a process's lease.
        let runs = Runs::new(Arc::clone(&store), RunDriver::start(&state)?);
        match runs.cancel(&id).await? {
            status if status.has_ended() => stream::write_output(&format!("{status}\n")),
            _ => stream::write_output("the process that drives the run was asked to end it\n"),
        }
    })
}

/// Prints everything that the store has about a run.
pub(crate) fn export(common: &CommonOptions, options: &OneRunOptions) -> Result<ExitCode, CliError> {
    with_run(common, options, async |store, id| {
        let export = RunExport::read(&*store, &id).await?;
        json::write_output(&export)
    })
}

/// Opens the store if it exists, passes it to `work`, and closes it.
pub(super) fn with_store(
    common: &CommonOptions,
    options: &StoreOptions,
    work: impl AsyncFnOnce(Option<Arc<dyn RunStore>>) -> Result<(), CliError>,
) -> Result<ExitCode, CliError> {
    let state = setup::envelope(common)?.state;
    let runtime = setup::runtime()?;
    runtime.block_on(async {
        let store = run_store::open_existing(options, &state).await?;
        // Close the store even after an error, because this checkpoints SQLite's write-ahead log into its
        // file.
        let done = work(store.clone()).await;
        if let Some(store) = store {
            store.close().await;
        }
        done
    })?;
    Ok(ExitCode::SUCCESS)
}

fn with_run(
    common: &CommonOptions,
    options: &OneRunOptions,
    work: impl AsyncFnOnce(Arc<dyn RunStore>, RunId) -> Result<(), CliError>,
) -> Result<ExitCode, CliError> {
    let id: RunId = options.id.parse()?;
    with_store(common, &options.store, async |store| {
        let missing =
            || StoreError::NotFound { entity: portcullis_runs::store::Entity::Run, id: id.to_string() };
        work(store.ok_or_else(missing)?, id.clone()).await
    })
}

/// Formats a store timestamp for a person.
pub(super) fn format_timestamp(milliseconds: i64) -> String {
    let time = Timestamp::from_millisecond(milliseconds);
    time.map_or_else(|_| milliseconds.to_string(), |time| format!("{time:.0}"))
}

/// The word for an unfinished run that no process drives.
const INTERRUPTED: &str = "interrupted";

/// Returns the word for a run's status, for a person: a run that has not ended may be driven, wait for an
/// answer, or be interrupted.
async fn status_label(store: &dyn RunStore, run: &RunSummary) -> Result<&'static str, CliError> {
    if run.status.has_ended() {
        return Ok(run.status.as_str());
    }
    let filter = ApprovalFilter { run: Some(run.id.clone()), status: Some(ApprovalStatus::Waiting) };
    let now = now();
    let waiting = store.approvals(filter, PageRequest::default()).await?.items;
    if waiting.iter().any(|approval| approval.request.expires.is_none_or(|expires| expires > now)) {
        return Ok("needs approval");
    }
    let is_driven = run.lease.as_ref().is_some_and(|(_, until)| *until > now);
    Ok(if is_driven { run.status.as_str() } else { INTERRUPTED })
}

/// Returns the first prompt of a run. Empty if it is not stored yet.
async fn first_prompt(store: &dyn RunStore, id: &str) -> Result<String, CliError> {
    let page = store.messages(id, PageRequest::first(1)).await?;
    let text = |message: &StoredMessage| {
        let message: Message = serde_json::from_str(message.body.as_str()).ok()?;
        (message.role == MessageRole::User).then(|| message.text())
    };
    Ok(page.items.first().and_then(text).unwrap_or_default())
}
