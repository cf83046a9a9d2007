//! The options of `portcullis audit report`.

use std::path::PathBuf;

use clap::Args;
use portcullis_tools::audit::is_sha256;

use super::{FilterOptions, ModuleOptions};

/// Write a report of the audit log as a page: for each tool and mount what is granted, what was used, and what was
/// refused; calls, denials, approvals, hosts, secrets, and changes of the policy.
///
/// The page is one file without scripts. It says whether the log is whole, and shows the grants of the policy in force.
/// The filters choose the rows that are counted; the log is always verified from its beginning.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis audit report --html report.html
  portcullis audit report --html november.html --since 2026-11-01 --until 2026-12-01
  portcullis audit report --html report.html --anchor journal.txt   # checkpoints that were kept elsewhere
  portcullis audit report --html report.html --head 5f1c…           # a head that was noted elsewhere

Exit codes:
  0 the log is intact    1 it is not, it contradicts --head or --anchor, there is none, or the page cannot be written
  2 wrong usage, or an unusable policy")]
pub(crate) struct ReportOptions {
    /// Write the page to this new file, which only its owner can read. An existing file is not replaced.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) html: PathBuf,

    /// The hash of a row, as `audit verify` printed it once: the report says whether the log still has that row.
    #[arg(long, value_name = "HASH", value_parser = row_hash)]
    pub(crate) head: Option<String>,

    /// Compare with the checkpoints in this file, or in standard input for `-`, as `audit verify --anchor` does.
    #[arg(long, value_name = "FILE")]
    pub(crate) anchor: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) filter: FilterOptions,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,
}

fn row_hash(text: &str) -> Result<String, String> {
    is_sha256(text)
        .then(|| text.to_ascii_lowercase())
        .ok_or_else(|| "it is not a hash of 64 hexadecimal digits".to_owned())
}
