//! Cargo, as the author's commands use it. The only file of the command line that starts programs, but for
//! the author's own program under `tool try --native`.
//!
//! What another build has set up for itself is taken out of its environment; where build output goes
//! (`CARGO_TARGET_DIR`) is the author's to say and stays.

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

/// What modules are built for.
const TARGET: &str = "wasm32-wasip1";

/// A tool's crate, as cargo sees it.
#[derive(Debug)]
pub(crate) struct Package {
    folder: PathBuf,
    programs: Vec<String>,
    /// Where their `fn main` should be.
    sources: Vec<PathBuf>,
    target: PathBuf,
    /// Whether all that it needs is here already.
    is_offline: bool,
}

/// The part of `cargo metadata` that counts here.
#[derive(Deserialize)]
struct Metadata {
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

impl Package {
    /// The crate of a folder. Its lock file is written if there is none.
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
        let metadata: Metadata =
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

    /// Where cargo puts what it builds of this crate.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Builds what is stale of the modules, and tells where they are.
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

    /// Builds what is stale of the crate's programs for this machine, and tells where they are.
    pub(crate) fn programs(&self) -> Result<Vec<PathBuf>, AuthorError> {
        if !self.run(&["build", "--bins"], [])? {
            return Err(AuthorError::Cargo { what: "the program does not build" });
        }
        let folder = self.target.join("debug");
        Ok(self.programs.iter().map(|name| folder.join(name)).collect())
    }

    /// Runs the crate's tests; whether they passed.
    pub(crate) fn test<'a>(
        &self,
        variables: impl IntoIterator<Item = (&'a str, OsString)>,
    ) -> Result<bool, AuthorError> {
        self.run(&["test"], variables)
    }

    /// Runs cargo in the crate. Its answer and its errors are shown as they are.
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
        // Progress is for people; warnings and errors are shown in any case.
        if !stream::stderr_is_terminal() {
            cargo.arg("--quiet");
        }
        // Only our answer goes to standard output.
        cargo.stdout(std::io::stderr());
        let status = cargo.status().map_err(|source| AuthorError::Start { program: "cargo", source })?;
        Ok(status.success())
    }
}

/// Whether cargo may fetch something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// No; and where it would have to, it says nothing.
    Never,
    /// Yes; and where it fails, it says why.
    IfNeeded,
}

/// What cargo says of a crate, whose lock file it writes if need be; none where it cannot say it.
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

/// Whether a program's source has nothing that is or makes a `fn main`. Asked after a build failed: the compiler
/// says only that the function is missing, and not what makes it.
fn has_no_main(source: &Path) -> bool {
    let mut text = String::new();
    let read = File::open(source).and_then(|file| file.take(MAX_SOURCE_BYTES).read_to_string(&mut text));
    read.is_ok() && !text.contains("export_tools!") && !text.contains("fn main")
}

/// How much of a program's source is looked through, in bytes.
const MAX_SOURCE_BYTES: u64 = 1 << 20;

/// Whether the compiler has the target's standard library. Asked after a build failed, so that the one line
/// that mends it stands below the compiler's many.
fn has_target(folder: &Path) -> bool {
    let mut compiler = program("rustc", folder);
    let asked =
        compiler.args(["--print", "target-libdir", "--target", TARGET]).stderr(Stdio::null()).output();
    match asked {
        Ok(output) if output.status.success() => {
            Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
        }
        // Nothing is known, so nothing is claimed.
        _ => true,
    }
}

/// A program of the toolchain, in a folder.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    #[expect(clippy::disallowed_methods, reason = "authors build and run what they write; no call does")]
    let mut program = Command::new(name);
    for (name, _) in env::vars_os() {
        if portcullis_guest_build::is_inherited(&name.to_string_lossy()) {
            program.env_remove(&name);
        }
    }
    // It may be relative to where we are, which is not where cargo will be.
    if let Some(target) = env::var_os("CARGO_TARGET_DIR").and_then(|it| std::path::absolute(it).ok()) {
        program.env("CARGO_TARGET_DIR", target);
    }
    program.current_dir(folder);
    program
}
