//! Why a task file, or a folder of task files, cannot be processed. These errors are for the operator. A
//! call's own error is in its result.

use std::{io, path::PathBuf};

use crate::limits::{
    MAX_CALLS_PER_FILE, MAX_EDIT_TRIES, MAX_FILE_BYTES, MAX_FRONT_MATTER_BYTES, MAX_LEDGER_ROWS,
};

/// Why one task file is not processed. The file stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file is a symbolic link.
    #[error("the file is a symbolic link, which is not followed; put the file itself into the folder")]
    Link,
    /// The name belongs to something other than a file.
    #[error("this is not a regular file")]
    NotAFile,
    /// The file is too large.
    #[error("the file has more than {MAX_FILE_BYTES} bytes; split the task, or remove old results")]
    TooLarge,
    /// The file is not UTF-8.
    #[error("the file is not valid UTF-8 at byte {position}")]
    NotText {
        /// The number of bytes before the fault.
        position: usize,
    },
    /// The front matter is too large.
    #[error("the front matter has more than {MAX_FRONT_MATTER_BYTES} bytes; move text into the body")]
    FrontMatterTooLarge,
    /// The front matter is not YAML.
    #[error("the front matter cannot be read as YAML")]
    FrontMatterSyntax(#[source] Box<serde_saphyr::Error>),
    /// The front matter is not a mapping.
    #[error("the front matter is not a mapping; write `key: value` lines between the two `---`")]
    FrontMatterShape,
    /// A row of the ledger cannot be read.
    #[error(
        "`tool_calls` in the front matter is not a ledger of calls; restore it, or remove the key to run the calls again"
    )]
    Ledger(#[source] serde_json::Error),
    /// The ledger has two rows for one call.
    #[error("`tool_calls` in the front matter has two rows for one call (`{block}`, {ordinal}); remove one")]
    LedgerTwice {
        /// The hash of the block.
        block: String,
        /// The ordinal of the call.
        ordinal: u32,
    },
    /// The ledger has too many rows.
    #[error(
        "`tool_calls` in the front matter would have more than {MAX_LEDGER_ROWS} rows; remove rows of blocks that the file no longer has"
    )]
    LedgerTooLong,
    /// The front matter could not be changed without changing other keys.
    #[error("the front matter cannot be edited without changing other keys; write it in plain block style")]
    FrontMatterEdit,
    /// The file has too many calls.
    #[error("the file has {found} calls, and at most {MAX_CALLS_PER_FILE} are run; split the task")]
    TooManyCalls {
        /// The number of calls.
        found: usize,
    },
    /// The file was removed or moved away.
    #[error("the file was removed or moved while it was processed")]
    Gone,
    /// The file keeps changing.
    #[error(
        "other programs changed the file {MAX_EDIT_TRIES} times while one change was being written; it was left unchanged"
    )]
    Contended,
    /// Other programs saved two versions while one change was being written, so both exist.
    #[error(
        "other programs saved two versions while a change was being written: one is in the file, the other in `{file}` beside it"
    )]
    EditKept {
        /// The name of the other version's file.
        file: String,
    },
    /// Another process has begun the call.
    #[error("another process has begun the same call")]
    BegunElsewhere,
    /// The target folder has very many files of the same name.
    #[error("no free name for the file in `{folder}`")]
    NoFreeName {
        /// The target folder.
        folder: String,
    },
    /// The system refused an operation.
    #[error("cannot {operation}")]
    Io {
        /// The failed operation, as a verb with its object.
        operation: &'static str,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The thread that did the work panicked.
    #[error("the work on the file panicked")]
    Panicked,
}

impl FileError {
    /// Returns whether the cause is in the file, so that a retry without a change of the file would fail
    /// the same way.
    pub(crate) fn is_lasting(&self) -> bool {
        !matches!(
            self,
            Self::Gone
                | Self::Contended
                | Self::EditKept { .. }
                | Self::BegunElsewhere
                | Self::NoFreeName { .. }
                | Self::Io { .. }
                | Self::Panicked
        )
    }
}

/// Why a folder of task files cannot be processed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskFolderError {
    /// The folder cannot be opened.
    #[error("cannot open the folder {}", path.display())]
    Open {
        /// The host path of the folder of task files.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Another process is working on the folder.
    #[error("another process runs the tasks of {}; end it first", path.display())]
    Busy {
        /// The host path of the folder of task files.
        path: PathBuf,
    },
    /// A state's folder cannot be created, opened or listed.
    #[error("cannot open the folder `{state}`; it must be a folder and not a symlink")]
    State {
        /// The state's folder.
        state: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Changes cannot be watched.
    #[error("cannot watch {}", path.display())]
    Watch {
        /// The host path of the folder of task files.
        path: PathBuf,
        /// The error of the file watcher.
        #[source]
        source: notify::Error,
    },
}
