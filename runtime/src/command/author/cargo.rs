//! Cargo, as the author's commands use it. No other file of the author's commands makes a `Command`:
//! `tool try --native` starts the author's own program through [`program`].
//!
//! Variables that an outer cargo has set for itself are removed from the environment. The target folder
//! (`CARGO_TARGET_DIR`) is the author's choice and stays.

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

/// The target of modules.
const TARGET: &str = "wasm32-wasip1";

/// A tool's crate, as cargo sees it.
#[derive(Debug)]
pub(crate) struct ToolCrate {
    folder: PathBuf,
    programs: Vec<String>,
    /// The source files that should contain their `fn main`.
    sources: Vec<PathBuf>,
    target: PathBuf,
    /// Whether all dependencies are available offline.
    is_offline: bool,
}

/// The used part of `cargo metadata`.
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
    /// Finds the crate of a folder. Writes its lock file if there is none.
    pub(crate) fn find(folder: &Path) -> Result<Self, AuthorError> {
        let no_crate = || AuthorError::NoCrate { path: folder.to_owned() };
        if !folder.join("Cargo.toml").is_file() {
            return Err(no_crate());
        }
        let (answer, is_offline) = match metadata(folder, Network::Never)? {
            Some(answer) => (answer, true),
            None => {
                let answer = metadata(folder, Network::IfNeeded)?;
                (answer.ok_or(AuthorError::Cargo { what: "the crate cannot be resolved" })?, false)
            }
        };
        let metadata: CargoMetadata =
            serde_json::from_slice(&answer).map_err(|source| AuthorError::Metadata { source })?;
        let root = metadata.resolve.and_then(|resolve| resolve.root).ok_or_else(no_crate)?;
        let package = metadata.packages.into_iter().find(|it| it.id == root).ok_or_else(no_crate)?;
        let is_program = |it: &TargetMetadata| it.kind.iter().any(|kind| kind == "bin");
        let (programs, sources): (Vec<String>, Vec<PathBuf>) =
            package.targets.into_iter().filter(is_program).map(|it| (it.name, it.src_path)).unzip();
        if programs.is_empty() {
            return Err(AuthorError::NoProgram { name: package.name });
        }
        let folder = std::path::absolute(folder)
            .map_err(|source| AuthorError::Make { path: folder.to_owned(), source })?;
        Ok(Self { folder, programs, sources, target: metadata.target_directory, is_offline })
    }

    /// Cargo's target folder of this crate.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Builds stale modules, and returns their paths.
    pub(crate) fn modules(&self) -> Result<Vec<PathBuf>, AuthorError> {
        let arguments = ["build", "--bins", "--release", "--target", TARGET];
        if !self.run(&arguments, [])? {
            return Err(match self.sources.iter().find(|source| has_no_main(source)) {
                _ if !has_target(&self.folder) => AuthorError::NoTarget,
                Some(source) => AuthorError::NoExport { path: PathBuf::from(super::build::near(source)) },
                None => AuthorError::Cargo { what: "the module does not build" },
            });
        }
        let folder = self.target.join(TARGET).join("release");
        Ok(self.programs.iter().map(|name| folder.join(format!("{name}.wasm"))).collect())
    }

    /// Builds the crate's stale programs for this machine, and returns their paths.
    pub(crate) fn programs(&self) -> Result<Vec<PathBuf>, AuthorError> {
        if !self.run(&["build", "--bins"], [])? {
            return Err(AuthorError::Cargo { what: "the program does not build" });
        }
        let folder = self.target.join("debug");
        Ok(self.programs.iter().map(|name| folder.join(name)).collect())
    }

    /// Runs the crate's tests, and returns whether they passed.
    pub(crate) fn test<'a>(
        &self,
        variables: impl IntoIterator<Item = (&'a str, OsString)>,
    ) -> Result<bool, AuthorError> {
        self.run(&["test"], variables)
    }

    /// Runs cargo in the crate. Its output and its errors are shown unchanged.
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
        // Progress is for people; warnings and errors are always shown.
        if !stream::stderr_is_terminal() {
            cargo.arg("--quiet");
        }
        // Only our answer goes to standard output.
        cargo.stdout(std::io::stderr());
        let status = cargo.status().map_err(|source| AuthorError::Start { program: "cargo", source })?;
        Ok(status.success())
    }
}

/// Whether cargo may use the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// No. If cargo would need it, it fails silently.
    Never,
    /// Yes. If cargo fails, it prints why.
    IfNeeded,
}

/// The output of `cargo metadata`, which writes a missing lock file; none if cargo fails.
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

/// Whether a program's source contains neither `fn main` nor `export_tools!`. Checked after a failed build:
/// the compiler reports only the missing function, not the macro that generates it.
fn has_no_main(source: &Path) -> bool {
    let mut text = String::new();
    let read = File::open(source).and_then(|file| file.take(MAX_SOURCE_BYTES).read_to_string(&mut text));
    read.is_ok() && !text.contains("export_tools!") && !text.contains("fn main")
}

/// How much of a program's source is searched, in bytes.
const MAX_SOURCE_BYTES: u64 = 1 << 20;

/// Whether the target's standard library is installed. Checked after a failed build, so that the one-line
/// remedy stands below the compiler's output.
fn has_target(folder: &Path) -> bool {
    let mut compiler = program("rustc", folder);
    let asked =
        compiler.args(["--print", "target-libdir", "--target", TARGET]).stderr(Stdio::null()).output();
    match asked {
        Ok(output) if output.status.success() => {
            Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
        }
        // Unknown: do not blame the target.
        _ => true,
    }
}

/// A toolchain program that runs in a folder.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    #[expect(clippy::disallowed_methods, reason = "authors build and run what they write; no call does")]
    let mut program = Command::new(name);
    for (name, _) in env::vars_os() {
        if portcullis_guest_build::configures_outer_cargo(&name.to_string_lossy()) {
            program.env_remove(&name);
        }
    }
    // A relative path is meant from our current folder, not from cargo's.
    if let Some(target) = env::var_os("CARGO_TARGET_DIR").and_then(|it| std::path::absolute(it).ok()) {
        program.env("CARGO_TARGET_DIR", target);
    }
    program.current_dir(folder);
    program
}
