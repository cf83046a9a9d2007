//! The options of `portcullis approvals`.

use clap::{Args, Subcommand};

use super::{ListOutput, StoreOptions};

/// Answer questions of runs in other processes.
///
/// A run asks through its store where the policy says so. Each question is bound to one call with its arguments and
/// access. An answer counts once; a question expires after 24 hours, or after 5 minutes if a person was asked at the
/// terminal of the run.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  portcullis approvals list
  portcullis approvals show approval_0123456789abcdef
  portcullis approvals approve approval_0123456789abcdef
  portcullis approvals deny approval_0123456789abcdef --reason 'not on a Friday'

Exit codes:
  0 done    1 the question takes no answer, or the store failed    2 wrong usage, or no such question")]
pub(crate) enum ApprovalsCommand {
    /// List the questions that wait, the newest first.
    List(ListApprovalsOptions),
    /// Show a question in full.
    Show(OneApprovalOptions),
    Approve(ApproveCallOptions),
    Deny(DenyCallOptions),
}

/// The options of `portcullis approvals list`.
#[derive(Debug, Args)]
pub(crate) struct ListApprovalsOptions {
    /// List questions that have an answer or have expired, too.
    #[arg(long)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) output: ListOutput,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// The question that a command is about.
#[derive(Debug, Args)]
pub(crate) struct OneApprovalOptions {
    /// The id of the question.
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// Let a call run.
#[derive(Debug, Args)]
pub(crate) struct ApproveCallOptions {
    #[command(flatten)]
    pub(crate) question: OneApprovalOptions,

    /// Let the call run with these arguments, a JSON object.
    ///
    /// They are checked as the model's are, and by the policy. Where the policy asks about them too, another question
    /// follows.
    #[arg(long, value_name = "JSON")]
    pub(crate) arguments: Option<String>,
}

/// Refuse a call.
#[derive(Debug, Args)]
pub(crate) struct DenyCallOptions {
    #[command(flatten)]
    pub(crate) question: OneApprovalOptions,

    /// The reason, which the model reads.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}
