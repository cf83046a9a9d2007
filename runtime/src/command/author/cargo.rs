//! Runs cargo for the author's commands. No other file of these commands creates a `Command`: even `tool try
//! --native` starts the author's own program through [`program`].
//!
//! Variables that an outer cargo has set for itself are removed from the environment. `CARGO_TARGET_DIR` stays,
//! because the target folder is the author's choice.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;

use crate::error::AuthorError;
use crate::output::stream;

/// The compilation target of modules.
const TARGET: &str = "wasm32-wasip1";

/// A tool's crate, as cargo sees it.
#[derive(Debug)]
pub(crate) struct ToolCrate {
    folder: PathBuf,
    programs: Vec<String>,
    /// The source files that should contain the programs' `fn main`.
    sources: Vec<PathBuf>,
    target_folder: PathBuf,
    /// Whether all dependencies are available offline.
    is_offline: bool,
}

/// The part of `cargo metadata` that is used here.
#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<PackageMetadata>,
    resolve: Option<Resolve>,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    root: Option<String>,
}

#[derive(Deserialize)]
struct PackageMetadata {
    id: String,
    name: String,
    targets: Vec<TargetMetadata>,
}

#[derive(Deserialize)]
struct TargetMetadata {
    name: String,
    src_path: PathBuf,
    kind: Vec<String>,
}

impl ToolCrate {
    /// Finds the crate of a folder. If the crate has no lock file, cargo writes one.
    pub(crate) fn find(folder: &Path) -> Result<Self, AuthorError> {
        let no_crate = || AuthorError::NoCrate { path: folder.to_owned() };
        if !folder.join("Cargo.toml").is_file() {
            return Err(no_crate());
        }
        let (answer, is_offline) = match metadata(folder, Network::Never)? {
            Some(answer) => (answer, true),
            None => {
                let answer = metadata(folder, Network::IfNeeded)?;
                (answer.ok_or(AuthorError::Cargo { problem: "the crate cannot be resolved" })?, false)
            }
        };
        let metadata: CargoMetadata =
            serde_json::from_slice(&answer).map_err(|source| AuthorError::Metadata { source })?;
        let root = metadata.resolve.and_then(|resolve| resolve.root).ok_or_else(no_crate)?;
        let package =
            metadata.packages.into_iter().find(|candidate| candidate.id == root).ok_or_else(no_crate)?;
        let is_program = |target: &TargetMetadata| target.kind.iter().any(|kind| kind == "bin");
        let (programs, sources): (Vec<String>, Vec<PathBuf>) = package
            .targets
            .into_iter()
            .filter(is_program)
            .map(|target| (target.name, target.src_path))
            .unzip();
        if programs.is_empty() {
            return Err(AuthorError::NoProgram { name: package.name });
        }
        let folder = std::path::absolute(folder)
            .map_err(|source| AuthorError::Make { path: folder.to_owned(), source })?;
        Ok(Self { folder, programs, sources, target_folder: metadata.target_directory, is_offline })
    }

    /// Cargo's target folder of this crate.
    pub(crate) fn target_folder(&self) -> &Path {
        &self.target_folder
    }

    /// Builds stale modules, and returns their paths.
    pub(crate) fn modules(&self) -> Result<Vec<PathBuf>, AuthorError> {
        let arguments = ["build", "--bins", "--release", "--target", TARGET];
        if !self.run(&arguments, [])? {
            return Err(match self.sources.iter().find(|source| has_no_main(source)) {
                _ if !has_target(&self.folder) => AuthorError::NoTarget,
                Some(source) => AuthorError::NoExport {
                    path: PathBuf::from(super::build::relative_to_current_folder(source)),
                },
                None => AuthorError::Cargo { problem: "the module does not build" },
            });
        }
        let folder = self.target_folder.join(TARGET).join("release");
        Ok(self.programs.iter().map(|name| folder.join(format!("{name}.wasm"))).collect())
    }

    /// Builds the crate's stale programs for this machine, and returns their paths.
    pub(crate) fn programs(&self) -> Result<Vec<PathBuf>, AuthorError> {
        if !self.run(&["build", "--bins"], [])? {
            return Err(AuthorError::Cargo { problem: "the program does not build" });
        }
        let folder = self.target_folder.join("debug");
        Ok(self.programs.iter().map(|name| folder.join(name)).collect())
    }

    /// Runs the crate's tests, and returns whether they passed.
    pub(crate) fn test<'a>(
        &self,
        variables: impl IntoIterator<Item = (&'a str, OsString)>,
    ) -> Result<bool, AuthorError> {
        self.run(&["test"], variables)
    }

    /// Runs cargo in the crate. Its output and errors are shown unchanged.
    fn run<'a>(
        &self,
        arguments: &[&str],
        variables: impl IntoIterator<Item = (&'a str, OsString)>,
    ) -> Result<bool, AuthorError> {
        let mut cargo = program("cargo", &self.folder);
        cargo.args(arguments).envs(variables).stdin(Stdio::null());
        if self.is_offline {
            cargo.arg("--offline");
        }
        // Progress is only for people. Warnings and errors are always shown.
        if !stream::stderr_is_terminal() {
            cargo.arg("--quiet");
        }
        // Cargo's output goes to standard error: only this command's answer goes to standard output.
        cargo.stdout(std::io::stderr());
        let status = cargo.status().map_err(|source| AuthorError::Start { program: "cargo", source })?;
        Ok(status.success())
    }
}

/// Whether cargo may access the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// No. If cargo needs the network, it fails without a message.
    Never,
    /// Yes. If cargo fails, it prints the reason.
    IfNeeded,
}

/// Returns the output of `cargo metadata`, which also writes a missing lock file. `None` if cargo fails.
pub(crate) fn metadata(folder: &Path, network: Network) -> Result<Option<Vec<u8>>, AuthorError> {
    let mut cargo = program("cargo", folder);
    cargo
        .args(["metadata", "--format-version", "1", "--filter-platform", TARGET])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    match network {
        Network::Never => cargo.arg("--offline").stderr(Stdio::null()),
        Network::IfNeeded => cargo.stderr(Stdio::inherit()),
    };
    let output = cargo.output().map_err(|source| AuthorError::Start { program: "cargo", source })?;
    Ok(output.status.success().then_some(output.stdout))
}

/// Returns whether a program's source contains neither `fn main` nor `export_tools!`. This is checked after a
/// failed build: the compiler reports only the missing function, not the macro that generates it.
fn has_no_main(source: &Path) -> bool {
    let mut text = String::new();
    let read = File::open(source).and_then(|file| file.take(MAX_SOURCE_BYTES).read_to_string(&mut text));
    read.is_ok() && !text.contains("export_tools!") && !text.contains("fn main")
}

/// The maximum length of the part of a program's source that is searched, in bytes.
const MAX_SOURCE_BYTES: u64 = 1 << 20;

/// Returns whether the target's standard library is installed. This is checked after a failed build, so that
/// the one-line remedy appears below the compiler's output.
fn has_target(folder: &Path) -> bool {
    let mut compiler = program("rustc", folder);
    let libdir_query =
        compiler.args(["--print", "target-libdir", "--target", TARGET]).stderr(Stdio::null()).output();
    match libdir_query {
        Ok(output) if output.status.success() => {
            Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
        }
        // If rustc gives no answer, assume that the target is installed.
        _ => true,
    }
}

/// Prepares a toolchain program that runs in a folder.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    #[expect(clippy::disallowed_methods, reason = "authors build and run what they write; no call does")]
    let mut program = Command::new(name);
    for (name, _) in env::vars_os() {
        if portcullis_guest_build::configures_outer_cargo(&name.to_string_lossy()) {
            program.env_remove(&name);
        }
    }
    // A relative path refers to this process's current folder, but cargo runs in another folder.
    if let Some(target) = env::var_os("CARGO_TARGET_DIR").and_then(|folder| std::path::absolute(folder).ok())
    {
        program.env("CARGO_TARGET_DIR", target);
    }
    program.current_dir(folder);
    program
}
