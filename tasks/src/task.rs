//! `Task`: one task file with its next call, the changes to the file, and its move to the next state.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use portcullis_types::{CancellationToken, EscapedText, ToolCall, ToolResult};
use tokio::sync::Semaphore;

use crate::{
    calls::{TaskCall, TaskCallRunner, TaskRunnerResult},
    document::TaskDocument,
    error::FileError,
    folder::FileVersion,
    ledger::{CallKey, LedgerRow, LedgerStatus},
    limits::MAX_CALLS_PER_FILE,
    request::BlockCall,
    result_fence,
    states::TaskStates,
    step::{TaskStep, may_have_calls, next_step},
    task_file::{TaskFile, WriteAhead, blocking, edit_in},
};

/// The report on one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCallReport {
    /// The line of the block in its file, from 1.
    pub line: usize,
    /// The tool. Empty if the block is not a valid call.
    pub tool: String,
    /// How the call ended.
    pub status: ReportedStatus,
}

/// The status of a call in a report for people and in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportedStatus {
    /// The call has succeeded.
    Succeeded,
    /// The call has failed, was refused, or is not a valid call.
    Failed {
        /// The stable code.
        code: String,
        /// The reason in words, for people.
        message: String,
    },
    /// The call waits for a person's approval.
    NeedsApproval,
}

/// A file of a scanned state.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) file: TaskFile,
    pub(crate) states: Arc<TaskStates>,
    pub(crate) runner: Arc<dyn TaskCallRunner>,
    /// Limits the number of concurrent calls.
    pub(crate) permits: Arc<Semaphore>,
    /// When this is cancelled, no further call begins.
    pub(crate) cancel: CancellationToken,
}

impl std::fmt::Debug for dyn TaskCallRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TaskCallRunner")
    }
}

/// How far this pass over the file got with a call.
enum TaskCallProgress {
    Ended(TaskCallReport),
    /// The processor is stopping, so the call has not begun.
    NotBegun,
    /// The block was changed or removed before the call began, so the call has not run.
    Changed,
    /// The call has had no effect. The row has the question.
    Asked {
        report: TaskCallReport,
        row: Box<LedgerRow>,
    },
}

/// The outcome for a processed file.
pub(crate) enum FileOutcome {
    /// The file stays, in this version.
    Stays(FileVersion),
    /// The file has moved to another state.
    Moved(String),
    /// The file stays, with calls that have not begun.
    Unfinished,
}

impl Task {
    /// Runs the remaining calls of the file, and moves it.
    ///
    /// # Cancellation
    /// Dropping the future leaves a call that has begun as interrupted.
    pub(crate) async fn process(&self, reports: &mut Vec<TaskCallReport>) -> Result<FileOutcome, FileError> {
        // Each turn finishes a call or moves the file. The limit is reached only if others keep adding calls.
        for _turn in 0..=2 * MAX_CALLS_PER_FILE {
            let file = self.file.clone();
            let is_approved = self.file.state.folder == self.states.approved();
            let (step, version, labels) = blocking(move || {
                let (text, version) = file.folder.read(&file.state.folder, &file.name)?;
                if !may_have_calls(&text) {
                    return Ok((TaskStep::Rest, version, BTreeSet::new()));
                }
                let document = TaskDocument::parse(text)?;
                file.log_skipped(&document);
                Ok((next_step(&document, is_approved), version, document.ledger().labels()))
            })
            .await?;
            let target = match step {
                TaskStep::Run { key, line, request, row, approved } => {
                    let call = RunningCall { key, line, request, row };
                    match self.run(call, approved, labels).await? {
                        TaskCallProgress::NotBegun => return Ok(FileOutcome::Unfinished),
                        TaskCallProgress::Changed => {}
                        TaskCallProgress::Ended(report) => reports.push(report),
                        TaskCallProgress::Asked { report, row } => {
                            if let Some(place) = self.wait_for_approval(version, row).await? {
                                reports.push(report);
                                return Ok(place);
                            }
                        }
                    }
                    continue;
                }
                TaskStep::Refuse { key, line, tool, row, code, message } => {
                    reports.push(self.refuse(key, line, tool, row, (code, message)).await?);
                    continue;
                }
                TaskStep::Rest => return Ok(FileOutcome::Stays(version)),
                TaskStep::AwaitApproval => self.states.pending_approval(),
                TaskStep::Move(LedgerStatus::Failed) => &self.file.state.on_failure,
                TaskStep::Move(_) => &self.file.state.on_success,
            };
            // A state may name itself as its target.
            if *target == self.file.state.folder {
                return Ok(FileOutcome::Stays(version));
            }
            let (file, to) = (self.file.clone(), target.to_owned());
            let moved = blocking(move || {
                let from = (&*file.state.folder, version);
                Ok(file.folder.move_file(&file.name, from, &to)?.map(|_name| to))
            });
            // `None` means that the file has changed since it was read.
            if let Some(to) = moved.await? {
                return Ok(FileOutcome::Moved(to));
            }
        }
        Err(FileError::Contended)
    }

    async fn run(
        &self,
        call: RunningCall,
        approved: Option<String>,
        labels: BTreeSet<String>,
    ) -> Result<TaskCallProgress, FileError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| FileError::Io {
            operation: "get random bytes",
            source: io::Error::other(error),
        })?;
        let call_id = format!("call_{}", hex::encode(random));
        let mut first = LedgerRow::pending(&call.key, &call.request.tool, now());
        if let Some(row) = &call.row {
            // A row with a question would mean that the call has not begun.
            first = LedgerRow { approval: None, question: None, ..row.clone() };
        }
        first.call_id.clone_from(&call_id);
        first.sanitized.clone_from(&call.request.sanitized);
        let before = Arc::new(WriteAhead {
            file: self.file.clone(),
            key: call.key.clone(),
            expected: call.row.clone(),
            row: Mutex::new(first),
            has_begun: Mutex::new(false),
            failure: Mutex::new(None),
        });
        let tool_call = ToolCall {
            id: call_id,
            tool: call.request.tool.clone(),
            arguments: call.request.parameters.clone(),
        };
        let task_call = TaskCall { task: self.file.name.clone(), call: tool_call, approved, labels };
        let end = {
            // The semaphore is never closed, so `acquire` cannot fail.
            let _permit = self.permits.acquire().await;
            if self.cancel.is_cancelled() {
                return Ok(TaskCallProgress::NotBegun);
            }
            self.runner.run(task_call, Arc::clone(&before) as _).await
        };
        // The call was stopped because its row could not be written.
        match before.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(FileError::Gone) => return Ok(TaskCallProgress::Changed),
            Some(error) => return Err(error),
            None => {}
        }
        let row = before.row.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match end {
            TaskRunnerResult::Ended(result) => {
                self.finish(call, row, result).await.map(TaskCallProgress::Ended)
            }
            TaskRunnerResult::NeedsApproval { binding, question } => {
                let row = LedgerRow { approval: Some(binding), question: Some(question), ..row };
                let status = ReportedStatus::NeedsApproval;
                Ok(TaskCallProgress::Asked {
                    report: TaskCallReport { line: call.line, tool: call.request.tool, status },
                    row: Box::new(row),
                })
            }
        }
    }

    /// Moves the file to the state of waiting tasks, and then writes the question there. The order matters: a
    /// question in a file of the state `approved` counts as answered, so it must never be written there.
    /// Returns `None` if the file has changed since it was read.
    async fn wait_for_approval(
        &self,
        version: FileVersion,
        row: Box<LedgerRow>,
    ) -> Result<Option<FileOutcome>, FileError> {
        let (file, to) = (self.file.clone(), self.states.pending_approval().to_owned());
        blocking(move || {
            let from = (&*file.state.folder, version);
            let Some(name) = file.folder.move_file(&file.name, from, &to)? else { return Ok(None) };
            edit_in(&file.folder, &to, &name, &|document: &TaskDocument| document.with_row((*row).clone()))?;
            Ok(Some(FileOutcome::Moved(to)))
        })
        .await
    }

    async fn finish(
        &self,
        call: RunningCall,
        row: LedgerRow,
        result: ToolResult,
    ) -> Result<TaskCallReport, FileError> {
        let code = result.outcome.error().map(|error| error.code().to_owned());
        let row = LedgerRow {
            status: if code.is_none() { LedgerStatus::Success } else { LedgerStatus::Failed },
            ended: Some(now()),
            duration_ms: u64::try_from(result.duration.as_millis()).ok(),
            code,
            ..row
        };
        let content = result_fence::content(&result, &row.sanitized).map_err(FileError::Ledger)?;
        let status = match result.outcome.error() {
            None => ReportedStatus::Succeeded,
            Some(error) => {
                ReportedStatus::Failed { code: error.code().to_owned(), message: error.message().to_owned() }
            }
        };
        self.log(call.line, &call.request.tool, &status);
        let RunningCall { key, line, request, row: expected } = call;
        let own_key = key.clone();
        let change = move |document: &TaskDocument| {
            let current = document.ledger().row(&own_key);
            // A person may have removed the row, but the result still belongs to this call.
            let is_ours = current.is_none_or(|current| current.call_id == row.call_id);
            if !is_ours && current != expected.as_ref() {
                return Err(FileError::BegunElsewhere);
            }
            document.with_result(row.clone(), &content)
        };
        self.edit(key, change).await?;
        Ok(TaskCallReport { line, tool: request.tool, status })
    }

    async fn refuse(
        &self,
        key: CallKey,
        line: usize,
        tool: String,
        row: Option<LedgerRow>,
        (code, message): (&'static str, String),
    ) -> Result<TaskCallReport, FileError> {
        let now = now();
        let row = row.unwrap_or_else(|| LedgerRow::pending(&key, &tool, now.clone()));
        let row =
            LedgerRow { status: LedgerStatus::Failed, ended: Some(now), code: Some(code.to_owned()), ..row };
        let content = result_fence::refusal(code, &message).map_err(FileError::Ledger)?;
        let status = ReportedStatus::Failed { code: code.to_owned(), message };
        self.log(line, &tool, &status);
        self.edit(key, move |document| document.with_result(row.clone(), &content)).await?;
        Ok(TaskCallReport { line, tool, status })
    }

    /// Changes the file. If a person has moved it in the meantime, changes it at its new location.
    async fn edit(
        &self,
        key: CallKey,
        change: impl Fn(&TaskDocument) -> Result<String, FileError> + Send + 'static,
    ) -> Result<(), FileError> {
        let (file, states) = (self.file.clone(), Arc::clone(&self.states));
        blocking(move || match file.edit(&change) {
            Err(FileError::Gone) => file.edit_elsewhere(&states, &key, &change),
            edited => edited,
        })
        .await
    }

    fn log(&self, line: usize, tool: &str, status: &ReportedStatus) {
        let (file, tool) = (EscapedText(&self.file.name), EscapedText(tool));
        match status {
            ReportedStatus::Failed { code, message } => {
                let message = EscapedText(message);
                tracing::warn!(%file, line, %tool, %code, %message, "a call of a task file has failed");
            }
            status => tracing::info!(%file, line, %tool, ?status, "a call of a task file has ended"),
        }
    }
}

/// A running call, and the row that its file had.
struct RunningCall {
    key: CallKey,
    line: usize,
    request: BlockCall,
    row: Option<LedgerRow>,
}

/// Returns the current time for the ledger.
fn now() -> String {
    format!("{:.0}", Timestamp::now())
}
