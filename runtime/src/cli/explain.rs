//! The options of `portcullis explain` and `portcullis policy lint`.

use std::path::PathBuf;

use clap::Args;
use portcullis_tools::policy::{FlowLabel, LintLevel};
use portcullis_types::SandboxTier;

use super::{AGENT_ID, ModuleOptions, sandbox_tier};

/// Explain what the policy would do with a call, without making it.
///
/// Shows the answer, its code, and the rules that lead to it, each with its file and line. The answer comes from the
/// function that judges real calls. Links in existing mounts are followed. Nothing is created, run or recorded.
///
/// A call that would ask its approver is not denied, so its exit code is 0; the answer says `ASK`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis explain file_read /vault/key
  portcullis explain file_write notes.md --after web
  portcullis explain shell_exec 'git push'
  portcullis explain --all-tools /vault/key
  portcullis explain --row 3000

Exit codes:
  0 the call runs, or asks first    2 wrong usage, or an unusable policy    3 denied; with --all-tools: by every tool")]
pub(crate) struct ExplainOptions {
    /// The tool. With `--all-tools` the path or URL is given here.
    #[arg(value_name = "TOOL", required_unless_present = "row")]
    pub(crate) tool: Option<String>,

    /// The path, URL or command that the call names. Without it, the explained call names no path, URL or command.
    #[arg(value_name = "PATH|URL|COMMAND", conflicts_with = "all_tools")]
    pub(crate) subject: Option<String>,

    /// The path is written, whatever the tool declares.
    #[arg(long)]
    pub(crate) write: bool,

    /// The agent of the call.
    #[arg(long, value_name = "A", default_value = AGENT_ID)]
    pub(crate) agent: String,

    /// A label of data that earlier calls of the run have read: `vault`, `web`, `mount:NAME` or `secret:NAME`. May be
    /// given several times.
    #[arg(long, value_name = "LABEL")]
    pub(crate) after: Vec<FlowLabel>,

    /// The isolation of the process, in place of `--sandbox-tier`.
    #[arg(long, value_name = "TIER", value_parser = sandbox_tier())]
    pub(crate) sandbox: Option<SandboxTier>,

    /// Explain the call of this row of the audit log, under the policy of its time, which the state folder keeps. The
    /// recorded decision is printed below, with a note if it differs.
    #[arg(long, value_name = "N", conflicts_with_all = ["tool", "subject", "write", "agent", "after", "all_tools"])]
    pub(crate) row: Option<u64>,

    /// List every tool that can name the path or URL, with its answer: even tools of modules, and those of them that
    /// may open files without naming them.
    #[arg(long)]
    pub(crate) all_tools: bool,

    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,
}

/// Compare two policies by their effect.
///
/// Shows what each tool may do under the new policy that it may not under the old one, and the other way round, and
/// every other value that differs. Comments and the order of entries make no difference.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis policy diff old.toml new.toml
  portcullis policy diff default my.toml --log
  portcullis policy diff bc7a9b516771 new.toml

Exit codes:
  0 the new policy allows nothing more    1 it may allow more    2 wrong usage, or an unusable policy")]
pub(crate) struct DiffOptions {
    /// The old policy: a file, `default` for the shipped policy, or the digest of a policy that rows of the audit log
    /// have, or its beginning.
    #[arg(value_name = "OLD")]
    pub(crate) old: String,

    /// The new policy, in the same forms.
    #[arg(value_name = "NEW")]
    pub(crate) new: String,

    /// Also decide the calls of the audit log again under the new policy.
    #[arg(long)]
    pub(crate) log: bool,

    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Look for mistakes in a policy: faults, and lines that are valid but probably unintended.
///
/// Each finding has a stable code, its file and line, and the line to write instead. Without FILE, the
/// command checks the policy in force, its overlay, the folders of its mounts and the approvals of modules. The command
/// creates no files and runs no tools.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis policy lint my.toml
  portcullis policy lint --sarif > policy.sarif

Exit codes:
  0 nothing as heavy as --fail-on    1 findings    2 a start would refuse the policy")]
pub(crate) struct LintOptions {
    /// The policy file.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Print the findings as SARIF 2.1.0.
    #[arg(long, conflicts_with = "json")]
    pub(crate) sarif: bool,

    /// Print the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// The least weight of findings that lead to the exit code 1: `note`, `warning` or `error`. An `error` always leads
    /// to the exit code 2.
    #[arg(long, value_name = "LEVEL", default_value = LintLevel::Warning.as_str())]
    pub(crate) fail_on: LintLevel,

    /// Assume that no approver answers, as in a service whose clients cannot ask, and list the tools whose calls
    /// would therefore be denied.
    #[arg(long)]
    pub(crate) no_approver: bool,
}
