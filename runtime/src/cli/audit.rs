//! The options of `portcullis audit`.

use std::path::PathBuf;

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use portcullis_tools::audit::{Decision, RowEvent};

use super::ReportOptions;

/// The number of rows that `audit log` shows by default.
const DEFAULT_LIMIT: usize = 50;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    Log(Box<LogOptions>),
    Replay(Box<ReplayOptions>),
    Report(Box<ReportOptions>),
    Verify(VerifyOptions),
    Bundle(Box<BundleOptions>),
    /// Seal the open segment of the audit log now, and print its checkpoint.
    ///
    /// The rows move to a read-only file in the folder `audit.segments`, and the log continues in a new file, also
    /// for processes that have it open. The checkpoint is a signed note. Keep it elsewhere: it proves later that no
    /// earlier row was changed or removed.
    Seal,
}

/// Write rows with everything that proves them, for someone who trusts neither Portcullis nor you.
///
/// The tar file holds the rows that match the filters. From the first of them up to the newest checkpoint, it holds
/// only the hashes of all other rows. It also holds the checkpoints, the policies and questions that the rows name, the
/// lock of approved modules, and `verify.py`, which checks everything with Python's standard library. Rows about
/// starts, policies and checkpoints are always disclosed. If no checkpoint covers the rows yet, one is made.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis audit bundle --since 30d --agent reviewer --out bundle.tar
  portcullis audit bundle --anchor kept.note --out bundle.tar     # proves that the log continues a kept checkpoint
  python3 verify.py bundle.tar --anchor kept.note                 # what the reader runs, after `tar xf`

Exit codes:
  0 written    1 the log is not intact, or there is none    2 wrong usage: no row matches, or the file exists")]
pub(crate) struct BundleOptions {
    /// The file to write, which must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,

    /// Prove that the log continues the checkpoints in this file, which the reader has, or in standard input for `-`.
    #[arg(long, value_name = "FILE")]
    pub(crate) anchor: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Check that no row of the audit log was changed, removed or inserted.
///
/// Prints the number of rows and the hash of the last one. Verification alone cannot detect
/// that the whole log was rewritten or its end was cut off. To detect that, compare it with a checkpoint or a hash
/// that was kept elsewhere.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis audit verify
  journalctl -u portcullis | portcullis audit verify --anchor -
  portcullis audit verify --head 5f0c… --json
  portcullis audit verify --file /backup/audit.segments/000001-1-9000.jsonl
  portcullis audit verify --bundle bundle.tar --key portcullis/…

Exit codes:
  0 intact    1 not intact, or there is no log    2 wrong usage, or a file without a checkpoint")]
pub(crate) struct VerifyOptions {
    /// Compare with the checkpoints in this file, or in standard input for `-`: signed notes, or lines of a journal
    /// with `portcullis-checkpoint`.
    #[arg(long, value_name = "FILE")]
    pub(crate) anchor: Vec<PathBuf>,

    /// Require a row with this hash, such as the head of an earlier verification.
    #[arg(long, value_name = "HASH")]
    pub(crate) head: Option<String>,

    /// The key that verifies checkpoints, or a file with it, instead of that of the state folder.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// Require a checkpoint that this witness has signed: its key, `NAME+8 hexadecimal digits+base64`, or a file with
    /// it.
    #[arg(long, value_name = "KEY")]
    pub(crate) witness: Vec<String>,

    /// Verify only this file: a sealed segment, or a copy of a log.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Verify this bundle.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "head", "witness"])]
    pub(crate) bundle: Option<PathBuf>,

    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the newest rows of the audit log, the newest last.
///
/// Filters combine: a row is shown if it meets every one. A filter given several times is met by any of its values. The
/// log is read from its end, so the newest rows of a long log come immediately.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis audit log --since 2h --decision deny
  portcullis audit log --path '/shared/src/**' --tool file_write --json
  portcullis audit log --event policy --limit 0
  portcullis audit log --follow --agent reviewer

Exit codes:
  0 done    1 a line of the log is not a row, or the log was replaced while it was followed    2 wrong usage")]
pub(crate) struct LogOptions {
    /// The number of rows to show; 0 means all.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT)]
    pub(crate) limit: usize,

    /// Print the rows as they are in the log, one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,

    /// Continue with the rows that are written from now on, until it is interrupted.
    #[arg(long)]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Decide the recorded calls again under the policy in force, or that of `--policy`.
///
/// A call is compared with the decision of the policy that was in force then, which the state folder keeps. Paths are
/// judged by name only: symlinks are not resolved, and answers to approvals are ignored.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis audit replay --policy new.toml
  portcullis audit replay --policy new.toml --since 30d --json

Exit codes:
  0 no call would be allowed more    1 some would, or a line of the log is not a row    2 wrong usage, or an
  unusable policy")]
pub(crate) struct ReplayOptions {
    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Selects rows.
#[derive(Debug, Clone, Args, Default)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterOptions {
    /// Calls of this agent.
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Vec<String>,

    /// Calls of this tool.
    #[arg(long, value_name = "TOOL")]
    pub(crate) tool: Vec<String>,

    /// Calls of this run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Vec<String>,

    /// The rows of this call.
    #[arg(long, value_name = "ID")]
    pub(crate) call: Vec<String>,

    /// The rows of this operation, such as the steps of one `vault_copyto`.
    #[arg(long, value_name = "ID")]
    pub(crate) operation: Vec<String>,

    /// Rows from this time on: `2026-11-26`, `2026-11-26T14:00`, `yesterday`, or a time back from now, such as `2h` or
    /// `30d`. A time without a zone is a local time.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,

    /// Rows before this time, in the same forms.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,

    /// Calls that used this mount, or named a path in it.
    #[arg(long, value_name = "MOUNT")]
    pub(crate) in_mount: Vec<String>,

    /// Calls that named or touched this guest path or a path below it. A pattern such as `/shared/**/*.rs` matches
    /// every path that it covers.
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Vec<String>,

    /// Calls with this decision.
    #[arg(long, value_name = "DECISION")]
    pub(crate) decision: Vec<Decision>,

    /// Calls that this rule decided, denied, or asked about. `tools.file_write` also means the rules below it.
    #[arg(long, value_name = "RULE")]
    pub(crate) rule: Vec<String>,

    /// Calls that ended with this code.
    #[arg(long, value_name = "CODE")]
    pub(crate) code: Vec<String>,

    /// Calls of runs that had this label when the call was decided.
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,

    /// Calls under the policy with this digest, which may be shortened.
    #[arg(long = "policy-digest", value_name = "DIGEST")]
    pub(crate) policy_digest: Vec<String>,

    /// Rows of this kind.
    #[arg(long, value_name = "EVENT", value_parser = row_kind())]
    pub(crate) event: Vec<RowEvent>,
}

/// The kinds that this version writes.
fn row_kind() -> impl TypedValueParser<Value = RowEvent> {
    let written = RowEvent::ALL.into_iter().filter(|kind| *kind != RowEvent::Other);
    PossibleValuesParser::new(written.map(RowEvent::as_str)).try_map(|text| text.parse::<RowEvent>())
}
