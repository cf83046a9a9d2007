//! Task files: Markdown files with tool calls, each of which runs once.
//!
//! A call is a fenced block with three backticks and the info string `json`, whose content is `{"tool_call":
//! {"name": "…", "parameters": {…}}}`. A [`TaskProcessor`] reads the files of some folders, and runs their
//! calls in document order through a [`TaskCallRunner`]. It writes each result below its block, and moves the
//! file to the folder of its next state.
//!
//! The front matter of a file has a ledger with one row for each call. The row is written before the call's
//! first effect, so that no call runs twice after a crash. A call is identified by the hash of its block, so
//! text can be written around it.
//!
//! This crate makes no policy decisions and runs no tool. It does not read the environment or write to
//! standard streams.
//!
//! | file | what it is |
//! |---|---|
//! | `processor.rs` | goes through the folders |
//! | `task.rs`, `step.rs` | one file: its next call, its result, its move |
//! | `task_file.rs` | changes of a file that others may change too |
//! | `calls.rs` | the seam to the pipeline of calls |
//! | `watch.rs` | waits for changed files |
//! | `document.rs` | a file's text and its parts |
//! | `fences.rs`, `request.rs` | a Markdown text's blocks, and a block as a call |
//! | `front_matter.rs`, `ledger.rs` | the YAML at the start, and the rows in it |
//! | `result_fence.rs`, `json_text.rs` | results as blocks that are never calls |
//! | `folder.rs` | file operations: no links, whole files, no lost edits |
//! | `states.rs` | the folders of states |
//! | `limits.rs`, `error.rs` | bounds and errors |
#![forbid(unsafe_code)]

mod calls;
mod document;
mod error;
mod fences;
mod folder;
mod front_matter;
mod json_text;
mod ledger;
pub mod limits;
mod processor;
mod request;
mod result_fence;
mod states;
mod step;
mod task;
mod task_file;
mod watch;

pub use calls::{CallStartRecorder, TaskCall, TaskCallRunner, TaskCallStart, TaskRunnerResult};
pub use error::{FileError, TaskFolderError};
pub use ledger::{CallKey, LedgerRow, LedgerStatus};
pub use processor::{TaskProcessor, TaskReport};
pub use states::{ScannedState, StatesError, TaskStates};
pub use task::{ReportedStatus, TaskCallReport};
