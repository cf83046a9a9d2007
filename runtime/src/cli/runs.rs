//! The options of `portcullis runs`.

use std::num::NonZeroU32;

use clap::{Args, Subcommand};

use super::{ListOutput, ModelOptions, StoreOptions};

/// The number of runs that a listing shows if the operator does not say.
const DEFAULT_LISTED: NonZeroU32 = NonZeroU32::new(20).expect("20 is not 0");

/// See runs of agents, resume one, or end one.
///
/// A run is stored after each step, and each of its calls before it begins and after it ends. A run whose process has
/// died is continued by `resume`: the model is not asked again for an answer that it gave, and a call that may
/// not be repeated does not run twice. If such a call had begun, the model learns that its effects are unknown.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  portcullis runs list
  portcullis runs watch run_0123456789abcdef
  portcullis runs resume run_0123456789abcdef

Exit codes:
  0 done    1 the run ended without an answer, or the store failed    2 wrong usage, or no such run
  5 the provider gave no complete answer    130 cancelled")]
pub(crate) enum RunsCommand {
    /// List runs, the newest first.
    List(ListRunsOptions),
    /// Show a run: its steps, its calls, and how it ended.
    Show(OneRunOptions),
    /// Show the steps and calls of a run as they happen, until it ends.
    Watch(OneRunOptions),
    Resume(ResumeOptions),
    /// End a run.
    ///
    /// The process that drives it cancels its calls. Without such a process, the run ends immediately.
    Cancel(OneRunOptions),
    /// Print all that the store has about a run, as JSON.
    ///
    /// State, messages, steps, calls with arguments and results, questions and answers. Times are milliseconds since
    /// 1970. The text can have what the run has read.
    Export(OneRunOptions),
}

/// The options of `portcullis runs list`.
#[derive(Debug, Args)]
pub(crate) struct ListRunsOptions {
    /// Only runs that have not ended.
    #[arg(long)]
    pub(crate) open: bool,

    /// The largest number of runs.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LISTED)]
    pub(crate) last: NonZeroU32,

    #[command(flatten)]
    pub(crate) output: ListOutput,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// The run that a command is about.
#[derive(Debug, Args)]
pub(crate) struct OneRunOptions {
    /// The id of the run.
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// Resume a run whose process has died, or that ended without an answer.
///
/// The interrupted step is taken again. After an end without an answer, the model is asked once more. The policy, the
/// model and the other options are those of this command, not those that the run began with.
#[derive(Debug, Args)]
pub(crate) struct ResumeOptions {
    #[command(flatten)]
    pub(crate) run: OneRunOptions,

    /// Resume it in the background, as `portcullis agent --detach` does.
    #[arg(long)]
    pub(crate) detach: bool,

    #[command(flatten)]
    pub(crate) model: ModelOptions,
}
