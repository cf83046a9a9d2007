//! `TaskFile`: changes a task file while others may change it too. `WriteAhead`: writes a row before a
//! call's first effect.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use portcullis_types::{EscapedText, ToolError, ToolErrorCode};

use crate::{
    calls::{CallStartRecorder, TaskCallStart},
    document::TaskDocument,
    error::FileError,
    folder::{Replaced, TaskFolder},
    ledger::{CallKey, LedgerRow},
    limits::MAX_EDIT_TRIES,
    request::NotACallReason,
    states::{ScannedState, TaskStates},
};

/// A file and its state.
#[derive(Debug, Clone)]
pub(crate) struct TaskFile {
    pub(crate) folder: Arc<TaskFolder>,
    pub(crate) state: ScannedState,
    pub(crate) name: String,
}

impl TaskFile {
    pub(crate) fn edit(
        &self,
        change: &impl Fn(&TaskDocument) -> Result<String, FileError>,
    ) -> Result<(), FileError> {
        edit_in(&self.folder, &self.state.folder, &self.name, change)
    }

    /// Logs the skipped blocks: data that is not a call, and blocks that may be half written.
    pub(crate) fn log_skipped(&self, document: &TaskDocument) {
        let file = EscapedText(&self.name);
        for block in document.skipped() {
            let line = block.line;
            match &block.request {
                None => tracing::warn!(%file, line, "a block is skipped: no fence closes it"),
                Some(Err(no_call @ NotACallReason::OtherText(_))) => {
                    tracing::warn!(%file, line, reason = %no_call, "a block is skipped");
                }
                Some(_) => tracing::info!(%file, line, "a block is skipped: it has no `tool_call`"),
            }
        }
    }

    /// Changes the file in the state to which a person has moved it. The ledger identifies it, because the
    /// call's row was written before the call began.
    pub(crate) fn edit_elsewhere(
        &self,
        states: &TaskStates,
        key: &CallKey,
        change: &impl Fn(&TaskDocument) -> Result<String, FileError>,
    ) -> Result<(), FileError> {
        for state in states.folders() {
            let Ok((text, _version)) = self.folder.read(state, &self.name) else { continue };
            let is_known =
                TaskDocument::parse(text).is_ok_and(|document| document.ledger().row(key).is_some());
            if is_known {
                return edit_in(&self.folder, state, &self.name, change);
            }
        }
        Err(FileError::Gone)
    }
}

pub(crate) fn edit_in(
    folder: &TaskFolder,
    state: &str,
    name: &str,
    change: &impl Fn(&TaskDocument) -> Result<String, FileError>,
) -> Result<(), FileError> {
    for _try in 0..MAX_EDIT_TRIES {
        let (text, _version) = folder.read(state, name)?;
        let document = TaskDocument::parse(text)?;
        let changed = change(&document)?;
        if folder.replace(state, name, document.text(), &changed)? == Replaced::Done {
            return Ok(());
        }
    }
    Err(FileError::Contended)
}

/// Writes the row of a call that begins.
pub(crate) struct WriteAhead {
    pub(crate) file: TaskFile,
    pub(crate) key: CallKey,
    /// The row that the file had when the call was chosen.
    pub(crate) expected: Option<LedgerRow>,
    /// The row as it was last written.
    pub(crate) row: Mutex<LedgerRow>,
    pub(crate) has_begun: Mutex<bool>,
    /// Why the row could not be written.
    pub(crate) failure: Mutex<Option<FileError>>,
}

#[async_trait]
impl CallStartRecorder for WriteAhead {
    async fn begin(&self, call: TaskCallStart) -> Result<(), ToolError> {
        let is_second =
            std::mem::replace(&mut *self.has_begun.lock().unwrap_or_else(PoisonError::into_inner), true);
        let row = {
            let mut row = self.row.lock().unwrap_or_else(PoisonError::into_inner);
            row.may_repeat = call.may_repeat;
            row.labels.extend(call.labels);
            row.attempts += u32::from(!is_second);
            row.clone()
        };
        let (file, key) = (self.file.clone(), self.key.clone());
        let expected = if is_second { Some(row.clone()) } else { self.expected.clone() };
        let written = blocking(move || {
            file.edit(&|document: &TaskDocument| {
                ensure_same(document, &key, expected.as_ref())?;
                if !document.calls().any(|block| block.key == key && block.request.is_some()) {
                    return Err(FileError::Gone);
                }
                document.with_row(row.clone())
            })
        });
        written.await.map_err(|error| {
            let refused = ToolError::unavailable(
                "the task file has changed or cannot be written, so the call did not run",
            )
            .with_code(ToolErrorCode::TaskFile)
            .with_operator_detail(portcullis_types::error_chain(&error));
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            refused
        })
    }
}

/// Returns an error if the file's row of the call has changed since the decision. Another process has then
/// begun the call.
pub(crate) fn ensure_same(
    document: &TaskDocument,
    key: &CallKey,
    expected: Option<&LedgerRow>,
) -> Result<(), FileError> {
    if document.ledger().row(key) == expected { Ok(()) } else { Err(FileError::BegunElsewhere) }
}

/// Runs file operations on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(FileError::Panicked))
}
