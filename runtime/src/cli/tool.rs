//! The options of `portcullis tool`: for authors, and for operators who approve a tool.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Modules;

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
/// The crate stands alone and depends on the SDK by its path; it builds offline with the packages that the
/// SDK's checkout was built with. Nothing that is there is overwritten, and nothing is left behind by half.
#[derive(Debug, Args)]
pub(crate) struct NewOptions {
    /// The tool's name: 1 to 64 characters of a-z, 0-9, `_` and `-`.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// The crate's folder, which must not be there yet; without it a folder of the tool's name, here.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// The folder of the crate `portcullis-sdk`.
    ///
    /// Without it, a folder `sdk` that is that crate is looked for upwards from the new crate's place, and
    /// then upwards from this program, which finds the checkout that it was built in.
    #[arg(long, value_name = "DIR")]
    pub(crate) sdk: Option<PathBuf>,
}

/// Build the tool of a crate for the sandbox, and show what it declares.
///
/// Cargo builds the crate for `wasm32-wasip1` in release mode, without the network where it can. Then the
/// module is loaded as `call --module` would load it, and asked what it has.
#[derive(Debug, Args)]
pub(crate) struct BuildOptions {
    #[command(flatten)]
    pub(crate) package: Package,
}

/// Build the tool of a crate if it is stale, and call it once.
///
/// The call goes the way of every call, under the policy in force. The answer goes to standard output; what
/// the tool was granted, what came of the call, and what was refused go to standard error. Of a refusal it is
/// said which lines of the policy would allow the call, where there are any: they are shown only after the
/// policy was evaluated with them in place.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis tool try word_count '{\"path\": \"/shared/README.md\"}'
  portcullis tool try word_count '{\"path\": \"/shared/README.md\"}' --grant WorkspaceRead

Exit codes are those of `portcullis call`; 1 also where the crate does not build or has no such tool.")]
pub(crate) struct TryOptions {
    /// The tool's name.
    #[arg(value_name = "NAME")]
    pub(crate) tool: String,

    /// The arguments, a JSON object; `-` reads them from standard input.
    #[arg(value_name = "JSON", default_value = "{}", hide_default_value = true)]
    pub(crate) arguments: String,

    /// Approve of the call in advance, as with `portcullis call`.
    #[arg(long)]
    pub(crate) approve: bool,

    /// Call it as if the policy had an entry that gives this profile to it.
    ///
    /// The policy's file is not changed. The entry is put into its text for this one call, which is evaluated
    /// and recorded like any other; the row's run is `try:PROFILE`, and its policy digest is that of the text
    /// with the entry.
    #[arg(long, value_name = "PROFILE")]
    pub(crate) grant: Option<String>,

    /// Run the tool as a program of this machine: UNCONFINED, under no policy, with no row in the audit log.
    ///
    /// For a debugger, and to tell the tool's own errors from the sandbox's. A guest path such as `/shared/x`
    /// means the workspace's `shared/x`.
    #[arg(long, conflicts_with_all = ["approve", "grant"])]
    pub(crate) native: bool,

    /// Print the whole result, or the error, with what was granted, as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) package: Package,
}

/// Run a crate's tests, with their cases natively and in the sandbox.
///
/// The module is built first. Then `cargo test` runs the crate's tests, and each `testing::Case` in them makes
/// its call twice: natively, and through this program in the sandbox. Fails if no test calls the module.
#[derive(Debug, Args)]
pub(crate) struct TestOptions {
    #[command(flatten)]
    pub(crate) package: Package,
}

/// Which crate is meant.
#[derive(Debug, Args)]
pub(crate) struct Package {
    /// The crate's folder.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
}

/// Pin a tool of a module from outside as it is now.
///
/// Shows what the tool declares beside what the policy gives to it, and what is not as it was approved before.
/// Then the hashes of its module and of its declarations are written to `portcullis.lock` in the state folder,
/// and the audit log has a row of it. From then on any change of either quarantines the tool: its calls are
/// denied until it is approved anew.
///
/// An approval opens nothing: what a tool may touch, and whether its calls are asked about, is the policy's.
#[derive(Debug, Args)]
pub(crate) struct ApproveOptions {
    /// The tool's name, as in `portcullis tools`.
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,

    /// Only show; pin nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) modules: Modules,
}

/// Withdraw what was approved under a tool's name.
///
/// The tool is then as one that was never approved: the policy alone decides on it, and a change no longer
/// quarantines it. To keep it from being called, write `enabled = false` into its entry of the policy. The
/// audit log has a row of it.
#[derive(Debug, Args)]
pub(crate) struct RevokeOptions {
    /// The tool's name.
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
}
