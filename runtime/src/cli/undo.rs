//! The options of `portcullis changes` and `portcullis undo`.

use clap::{ArgGroup, Args};

/// Show what calls have changed.
///
/// Without CALL and `--run`, lists the calls whose changes are kept, the newest first. With either, shows how the
/// files differ now from their state before the calls. Changes are kept for mounts with `undo = true`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis changes
  portcullis changes --run cli
  portcullis changes call_42

Exit codes:
  0 shown    1 no kept changes belong to the name    2 wrong usage, or an unusable policy")]
pub(crate) struct ChangesOptions {
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// Undo changes of calls.
///
/// Without CALL and `--run`, undoes the newest call whose changes are still in force. Files get their earlier content,
/// permissions and times; new files and folders are removed. If something cannot be restored, or was changed by
/// someone else since, nothing is changed at all. An undo is kept like a call, so it can be undone in turn.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis undo
  portcullis undo --run cli

Exit codes:
  0 undone, or nothing to do    1 not undone    2 wrong usage, or an unusable policy")]
pub(crate) struct UndoOptions {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Also restore paths that someone else has changed since, and skip paths that cannot be restored. The current state
    /// of each path is saved first.
    #[arg(long)]
    pub(crate) force: bool,
}

/// The calls whose changes to undo.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("calls"))]
pub(crate) struct Selection {
    /// A call, by its id or by the id of its record, as `portcullis changes` lists them.
    #[arg(value_name = "CALL", group = "calls")]
    pub(crate) call: Option<String>,

    /// All calls of this run.
    #[arg(long, value_name = "RUN", group = "calls")]
    pub(crate) run: Option<String>,
}
