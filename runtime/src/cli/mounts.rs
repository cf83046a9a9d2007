//! The options of `portcullis mounts`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use portcullis_tools::{
    ReachSource,
    policy::{MountName, SecretName},
};

use super::ModuleOptions;

/// Show what each tool may do in each mount.
///
/// The answers come from the function that judges calls. The numbers come from the audit log: how many calls used a
/// mount, and how many calls that named a path in it were refused. The command creates no files and runs no tools.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis mounts
  portcullis mounts --by mount
  portcullis mounts --reach vault
  portcullis mounts --reach env:GITHUB_TOKEN
  portcullis mounts --html mounts.html

Exit codes:
  0 done    1 the page cannot be written    2 wrong usage, or an unusable policy")]
pub(crate) struct MountsOptions {
    /// The content of a row of the table.
    #[arg(long, value_enum, default_value_t = MountsView::Tool, conflicts_with = "reach")]
    pub(crate) by: MountsView,

    /// Show where data can go from this source, over chains of calls: the name of a mount, `web`, `secret:NAME`, or
    /// `env:NAME` for a variable.
    #[arg(long, value_name = "SOURCE", value_parser = reach_source)]
    pub(crate) reach: Option<ReachSource>,

    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the map as a page to this new file, which only its owner can read. An existing file is not replaced.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["by", "reach", "json"])]
    pub(crate) html: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,
}

/// The rows of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MountsView {
    /// One row for each tool, one column for each mount.
    Tool,
    /// One row for each grant, sorted by mount, with its rule and the place of the rule.
    Mount,
    /// One row for each profile, one column for each mount.
    Profile,
}

fn reach_source(text: &str) -> Result<ReachSource, String> {
    match text.split_once(':') {
        None if text == "web" => Ok(ReachSource::Web),
        None => MountName::parse(text).map(ReachSource::Mount).map_err(|error| error.to_string()),
        Some(("secret", name)) => {
            SecretName::parse(name).map(ReachSource::Secret).map_err(|error| error.to_string())
        }
        Some(("env", name)) if !name.is_empty() => Ok(ReachSource::Variable(name.to_owned())),
        Some(_) => {
            Err("it is not a source: write a mount's name, `web`, `secret:NAME` or `env:NAME`".to_owned())
        }
    }
}
