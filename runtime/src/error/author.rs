//! Errors of an author's commands.

use std::{io, path::PathBuf};

use portcullis_types::InvalidToolName;
use thiserror::Error;

/// The reason why a tool's crate cannot be created, built or tried.
#[derive(Debug, Error)]
pub(crate) enum AuthorError {
    /// The name is not valid for a tool.
    #[error(transparent)]
    Name(#[from] InvalidToolName),
    /// The name is a shipped tool's, or resembles one.
    #[error("{}", name_taken_message(name, shipped))]
    Shipped { name: String, shipped: &'static str },
    /// The path is already taken.
    #[error("`{}` already exists, and nothing is overwritten; name another folder with --dir", path.display())]
    Exists { path: PathBuf },
    /// The new crate cannot be written.
    #[error("cannot make the crate `{}`", path.display())]
    Make { path: PathBuf, source: io::Error },
    /// The named folder is not the SDK.
    #[error("`{}` is not the folder of the crate `portcullis-sdk`", path.display())]
    NotTheSdk { path: PathBuf },
    /// The SDK was not found.
    #[error(
        "there is no folder `sdk` with the crate `portcullis-sdk` above `{}` or above this program; name it with --sdk DIR",
        from.display()
    )]
    NoSdk { from: PathBuf },
    /// The path is not UTF-8, so it cannot be written to a manifest.
    #[error("the path `{}` is not UTF-8, so no manifest can name it", path.display())]
    PathText { path: PathBuf },
    /// The folder has no crate.
    #[error("there is no crate in `{}`; name its folder with --dir, or make one with `portcullis tool new NAME`", path.display())]
    NoCrate { path: PathBuf },
    /// The crate produces no module.
    #[error(
        "the crate `{name}` has no program, so it makes no module; `export_tools!` belongs in its `src/main.rs`"
    )]
    NoProgram { name: String },
    /// A required program cannot be started.
    #[error("cannot start `{program}`; tools are built with Rust's own: https://rustup.rs")]
    Start { program: &'static str, source: io::Error },
    /// Cargo failed and has printed the reason.
    #[error("{problem}; see cargo's messages above")]
    Cargo { problem: &'static str },
    /// The program has no `export_tools!`.
    #[error(
        "`{}` has no `export_tools!`, which makes its `fn main`: end it with `export_tools![NAME];`, where NAME is the function with `#[tool]`; cargo's messages are above",
        path.display()
    )]
    NoExport { path: PathBuf },
    /// Cargo's answer cannot be read.
    #[error("cannot read cargo's description of the crate")]
    Metadata { source: serde_json::Error },
    /// The compiler lacks the sandbox's target.
    #[error(
        "modules are built for the target `wasm32-wasip1`, which is not installed; run `rustup target add wasm32-wasip1`"
    )]
    NoTarget,
    /// The module is too large to be loaded.
    #[error("the module `{}` has {bytes} bytes; at most {limit} are loaded", path.display())]
    TooLarge { path: PathBuf, bytes: u64, limit: usize },
    /// The module cannot be read.
    #[error("cannot read the module `{}`", path.display())]
    Module { path: PathBuf, source: io::Error },
    /// The crate has no such tool.
    #[error("the crate has no tool `{}`; it has: {has}", name.escape_default())]
    NoTool { name: String, has: String },
    /// The policy maps a mount to a folder of another name.
    #[error(
        "natively a guest path means the folder of its name in the workspace, and the policy's mount `{mount}` is the folder `{folder}`"
    )]
    NativeMount { mount: String, folder: String },
    /// The program does not describe its tools.
    #[error("the program does not describe its tools: {reason}")]
    Describe { reason: String },
    /// The tests failed.
    #[error("the crate's tests failed")]
    Tests,
    /// No test called the module.
    #[error(
        "no test called the module, so it is untested in the sandbox; write cases with `portcullis_sdk::testing::Case`"
    )]
    NoCase,
}

fn name_taken_message(name: &str, shipped: &str) -> String {
    if name == shipped {
        format!("`{name}` is the name of a shipped tool, so no module may use it; choose another name")
    } else {
        format!(
            "`{name}` looks like the shipped tool `{shipped}`, so no module may use it; choose another name"
        )
    }
}

impl AuthorError {
    /// Returns whether the command was used wrongly.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Name(_)
                | Self::Shipped { .. }
                | Self::Exists { .. }
                | Self::NotTheSdk { .. }
                | Self::NoSdk { .. }
                | Self::NoCrate { .. }
                | Self::PathText { .. }
                | Self::NativeMount { .. }
        )
    }

    /// Returns whether this machine lacks a program or target that can be installed.
    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(self, Self::Start { .. } | Self::NoTarget)
    }
}
