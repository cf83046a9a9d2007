//! The options of `portcullis calls`.

use clap::{Args, Subcommand};

use super::{ListOutput, StoreOptions};

/// See calls whose results are submitted from outside, and submit a result.
///
/// A call of an external tool (`--tool-file`) is kept in the store of runs until someone submits its result. If the run
/// still waits, the call returns the result. Otherwise the run gets the result as a message before its next request to
/// the model. A call takes one result, within 24 hours.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  portcullis calls list
  portcullis calls show call_0123456789abcdef
  portcullis calls resolve call_0123456789abcdef '{\"confirmed\": true}'

Exit codes:
  0 done    1 the call takes no result, or the store failed    2 wrong usage, or no such call")]
pub(crate) enum CallsCommand {
    /// List the calls that take a result, the newest first.
    List(ListCallsOptions),
    /// Show a call with its arguments, and its result if it has one.
    Show(OneCallOptions),
    Resolve(ResolveOptions),
}

/// The options of `portcullis calls list`.
#[derive(Debug, Args)]
pub(crate) struct ListCallsOptions {
    /// Also list calls that no longer accept a result.
    #[arg(long)]
    pub(crate) all: bool,

    /// Only calls of this run.
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<String>,

    #[command(flatten)]
    pub(crate) output: ListOutput,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// The call that a command is about.
#[derive(Debug, Args)]
pub(crate) struct OneCallOptions {
    /// The id of the call, as `calls list` shows it.
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// Submit the result of a call.
#[derive(Debug, Args)]
pub(crate) struct ResolveOptions {
    #[command(flatten)]
    pub(crate) call: OneCallOptions,

    /// The result, a JSON value; `-` reads it from standard input.
    #[arg(value_name = "JSON")]
    pub(crate) result: String,
}
