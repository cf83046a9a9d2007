//! The options of `portcullis policy test` and `portcullis policy tighten`.

use std::path::PathBuf;

use clap::Args;

use super::ModuleOptions;

/// Decide whether the policy in force is as its operator expects.
///
/// The expectations are in `portcullis.expect.toml` beside the policy file, and for a policy `NAME.toml` also in
/// `NAME.expect.toml`. An expectation states the verdict on a call, forbids a data flow over chains of
/// calls, or pins the policy's digest. The evaluator that decides real calls checks every case, not a sample.
/// Portcullis refuses to start with a policy that fails an expectation.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis policy test
  portcullis policy test --policy new.toml --expect portcullis.expect.toml
  portcullis policy test --coverage

Exit codes:
  0 all expectations hold    1 some do not    2 an unusable policy or file")]
pub(crate) struct PolicyTestOptions {
    /// The file of expectations, in place of those beside the policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,

    /// Also list the grants that no expectation mentions: tools with mounts and accesses, and tools with hosts.
    #[arg(long)]
    pub(crate) coverage: bool,

    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,
}

/// Write an overlay that takes away what no recorded call used.
///
/// An overlay can only take away, so a wrong suggestion can make calls fail and never allows one. Only mounts of
/// profiles are reduced. The overlay is printed with its proofs as comments: the differences in effect, which must all
/// be narrower, and the recorded calls, which must all be decided as before. An overlay that the workspace has is kept
/// and extended.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis policy tighten > tighter.toml
  portcullis policy tighten --since 90d --min-calls 200 --out tighter.toml

Exit codes:
  0 done    1 the log cannot be read, or the file cannot be written    2 wrong usage, or an unusable policy")]
pub(crate) struct TightenOptions {
    /// Count the calls since this time, in the formats of `audit log --since`.
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub(crate) since: String,

    /// A profile with fewer calls than this is left alone.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) min_calls: u64,

    /// Write the overlay to this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}
