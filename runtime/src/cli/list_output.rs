//! The options that say how a list is printed.

use clap::Args;

/// How a list is printed: as a table, unless an option says otherwise.
#[derive(Debug, Args)]
pub(crate) struct ListOutput {
    /// Print the list as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print only the ids, one per line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) ids: bool,
}
