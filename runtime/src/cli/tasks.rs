//! The options of `portcullis tasks`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ModuleOptions;

/// Run the tool calls in task files.
#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    Run(RunTasksOptions),
}

/// Run the tool calls in the Markdown files of a folder, each once.
///
/// DIR has a folder for each state; missing ones are made. In the files of the scanned states, each fenced block with
/// three backticks and the info string `json` that holds `{"tool_call": {"name": …, "parameters": {…}}}` is a call. The
/// calls of a file run in order, and each result is written below its block. Then the file moves to its next state.
///
/// The front matter of a file lists its calls. It is written before a call begins, so no call runs twice, even after a
/// crash.
///
/// A call that needs an approval waits in `03_Pending_Approval`. Moving its file to `04_Approved` approves it, unless a
/// tool can write in one of these two folders: then approvals need `--approve`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis tasks run ~/tasks
  portcullis tasks run ~/tasks --watch
  portcullis tasks run ~/tasks --states states.toml

Exit codes:
  0 done    1 a call failed, or a file was not processed    2 wrong usage, or an unusable policy
  130 interrupted")]
pub(crate) struct RunTasksOptions {
    /// The folder of tasks.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,

    /// Stay, and process each file that changes, until Ctrl-C.
    #[arg(long)]
    pub(crate) watch: bool,

    /// Approve all calls in advance, without asking.
    ///
    /// This answers the policy's questions. Calls that the policy denies stay denied.
    #[arg(long)]
    pub(crate) approve: bool,

    /// The file that names the states, in TOML. It must be outside the folder of tasks.
    #[arg(long, value_name = "FILE")]
    pub(crate) states: Option<PathBuf>,

    /// Print one JSON object for each file.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,
}
