//! The options of `portcullis tool`: for authors, and for operators who approve a tool.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ModuleOptions;

#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    New(NewOptions),
    Build(BuildOptions),
    Try(TryOptions),
    Test(TestOptions),
    Approve(ApproveOptions),
    Revoke(RevokeOptions),
}

/// Make a crate with one tool, its test and a README.
///
/// The crate is its own workspace and depends on the SDK by its path; it builds offline with the packages that the
/// SDK's checkout was built with. Existing files are never overwritten. If a step fails, the new folder is removed.
#[derive(Debug, Args)]
pub(crate) struct NewOptions {
    /// The tool's name: 1 to 64 characters of A-Z, a-z, 0-9, `_` and `-`.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// The new crate's folder; it must not exist. Default: a folder with the tool's name in the current one.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// The folder of the crate `portcullis-sdk`.
    ///
    /// Default: the nearest folder `sdk` with that crate, above the new crate or else above this program. The second
    /// finds the checkout that the program was built in.
    #[arg(long, value_name = "DIR")]
    pub(crate) sdk: Option<PathBuf>,
}

/// Build the tool of a crate for the sandbox, and show what it declares.
///
/// Cargo builds the crate for `wasm32-wasip1` in release mode, if possible without the network. Then the module
/// is loaded as with `call --module`, and asked for its tools.
#[derive(Debug, Args)]
pub(crate) struct BuildOptions {
    #[command(flatten)]
    pub(crate) package: PackageOptions,
}

/// Build the tool of a crate if it is stale, and call it once.
///
/// The call is checked, decided, confined and recorded like any other, under the policy in force. The answer goes to
/// standard output. The grant, the outcome and the reason of a refusal go to standard error. For a refusal this
/// includes the policy lines that would allow the call, if there are any; they are shown only after the policy was
/// evaluated with them.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis tool try line_count '{\"path\": \"/shared/README.md\"}'
  portcullis tool try line_count '{\"path\": \"/shared/README.md\"}' --grant WorkspaceRead

Exit codes are those of `portcullis call`; 1 also if the crate does not build or has no such tool.")]
pub(crate) struct TryOptions {
    /// The tool's name.
    #[arg(value_name = "NAME")]
    pub(crate) tool: String,

    /// The arguments, a JSON object; `-` reads them from standard input.
    #[arg(value_name = "JSON", default_value = "{}", hide_default_value = true)]
    pub(crate) arguments: String,

    /// Approve this call in advance, as with `portcullis call`.
    #[arg(long)]
    pub(crate) approve: bool,

    /// Call it as if the policy had an entry that gives it this profile.
    ///
    /// The policy's file does not change. The entry is added to its text for this call only, which is evaluated and
    /// recorded like any other. The row's run is `try:PROFILE`; its policy digest is that of the text with the entry.
    #[arg(long, value_name = "PROFILE")]
    pub(crate) grant: Option<String>,

    /// Run the tool as a program of this machine: UNCONFINED, under no policy, with no row in the audit log.
    ///
    /// For a debugger, and to tell the tool's own errors from the sandbox's. A guest path such as `/shared/x`
    /// means the workspace's `shared/x`.
    #[arg(long, conflicts_with_all = ["approve", "grant"])]
    pub(crate) native: bool,

    /// Print the whole result, or the error, with the grant, as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) package: PackageOptions,
}

/// Run a crate's tests, with their cases natively and in the sandbox.
///
/// The module is built first. Then `cargo test` runs the crate's tests, and each `testing::Case` in them makes
/// its call twice: natively, and through this program in the sandbox. Fails if no test calls the module.
#[derive(Debug, Args)]
pub(crate) struct TestOptions {
    #[command(flatten)]
    pub(crate) package: PackageOptions,
}

/// Selects the crate.
#[derive(Debug, Args)]
pub(crate) struct PackageOptions {
    /// The crate's folder.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
}

/// Pin a tool of a foreign module as it is now.
///
/// Shows the tool's declaration, the policy's grant, and the differences to the earlier approval. Then the hashes of
/// its module and of its declarations are written to `portcullis.lock` in the state folder, and the audit log gets a
/// row. After that, a change of either quarantines the tool: its calls are denied until it is approved again.
///
/// An approval grants nothing: the policy decides what a tool may touch and whether its calls need an approval.
#[derive(Debug, Args)]
pub(crate) struct ApproveOptions {
    /// The tool's name, as in `portcullis tools`.
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,

    /// Show the approval without writing it.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,
}

/// Withdraw the approval of a tool.
///
/// The tool is then like one that was never approved: the policy alone decides on it, and a change no longer
/// quarantines it. To deny its calls, write `enabled = false` into its entry of the policy. The audit log gets a row.
#[derive(Debug, Args)]
pub(crate) struct RevokeOptions {
    /// The tool's name.
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
}
