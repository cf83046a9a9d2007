//! [`Fixture`]: a workspace, a state folder and a registry for one test.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use portcullis::OwnSidecar;
use portcullis_tools::{
    BootstrapError, Caller, RegistryBuilder, ToolRegistry, ToolResult,
    approval::ApproveAll,
    audit::{self, Row},
    new_call,
    policy::{DEFAULT_POLICY, ToolOrigin},
    runtime_builder,
    shell::ShellSource,
};
use portcullis_types::{RunnerBootstrapEnvelope, ToolError, ToolErrorKind, ToolOutcome};
use serde_json::Value;
use tempfile::TempDir;

use crate::with_policy_key;

/// The fixture of one test. Dropping it removes its folders.
#[derive(Debug)]
pub struct Fixture {
    root: TempDir,
    policy: String,
    /// Whether the fixture shares modules that are compiled on their first call.
    shares_lazy_modules: bool,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if self.shares_lazy_modules {
            crate::modules::save_lazy_modules(&self.state());
        }
    }
}

/// The policy line that replaces the timeout of [`LAZY_TOOLS`].
pub const LAZY_COMPILE_TIMEOUT: &str = "timeout = \"5m\"";

/// The tools whose modules are compiled on the first call, and the operations with such tools as steps.
const LAZY_TOOLS: [&str; 6] = [
    "web_fetch",
    "web_fetch_robots",
    "web_fetch_read",
    "web_fetch_read_pdf",
    "web_search",
    "web_search_read",
];

/// The result of a call, with accessors for assertions.
#[derive(Debug)]
pub struct CallOutcome(pub ToolResult);

impl Fixture {
    /// Creates an empty workspace under the shipped policy.
    ///
    /// # Panics
    /// If the folders cannot be created.
    #[must_use]
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let fixture = Self { root, policy: DEFAULT_POLICY.to_owned(), shares_lazy_modules: false };
        for mount in ["shared", "tmp", "vault"] {
            fs::create_dir_all(fixture.workspace().join(mount)).expect("a mount's folder");
        }
        fixture
    }

    /// Shares modules that are compiled on their first call, such as that of the web tools, with the other
    /// fixtures that call this function. Compiling such modules takes seconds, and longer on a busy machine,
    /// so the tools that use them have the timeout [`LAZY_COMPILE_TIMEOUT`].
    #[must_use]
    pub fn with_shared_modules(mut self) -> Self {
        self.shares_lazy_modules = true;
        for tool in LAZY_TOOLS {
            let section = format!("[tools.{tool}]");
            self = self.with_policy_edit(&section, &format!("{section}\n{LAZY_COMPILE_TIMEOUT}"));
        }
        self
    }

    /// Adds a text to the policy, such as an entry for a tool.
    #[must_use]
    pub fn with_policy(mut self, text: &str) -> Self {
        self.policy.push('\n');
        self.policy.push_str(text);
        self
    }

    /// Replaces a part of the policy's text.
    ///
    /// # Panics
    /// If the text has no such part.
    #[must_use]
    pub fn with_policy_edit(mut self, from: &str, to: &str) -> Self {
        assert!(self.policy.contains(from), "the policy has no `{from}`");
        self.policy = self.policy.replace(from, to);
        self
    }

    /// Sets a key of the policy, such as `shell.deny`, to a value in TOML.
    ///
    /// # Panics
    /// If the policy has no such section, or the value is not TOML.
    #[must_use]
    pub fn with_policy_key(mut self, key: &str, value: &str) -> Self {
        self.policy = with_policy_key(&self.policy, key, value);
        self
    }

    /// The folder that contains the workspace and the state folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns the host path of the workspace.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// The state folder.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    /// Writes the policy file, and returns its path.
    ///
    /// # Panics
    /// If the file cannot be written.
    #[must_use]
    pub fn policy_file(&self) -> PathBuf {
        let path = self.root.path().join("policy.toml");
        fs::write(&path, &self.policy).expect("writable");
        path
    }

    /// Returns the command line's options for this fixture, and writes the policy file. A new state
    /// folder starts with the modules that an earlier fixture has compiled, so that not every program
    /// compiles the core tools.
    ///
    /// # Panics
    /// If the policy file cannot be written.
    #[must_use]
    pub fn options(&self) -> [OsString; 6] {
        let _ = self.copy_compiled_modules();
        let [workspace, state, policy] =
            [self.workspace(), self.state(), self.policy_file()].map(OsString::from);
        ["--workspace".into(), workspace, "--state".into(), state, "--policy".into(), policy]
    }

    /// Copies the modules that an earlier fixture has compiled into another new state folder, so that
    /// programs with that folder need not compile the core tools.
    pub fn copy_compiled_modules_to(&self, state: &Path) {
        crate::modules::copy_compiled_modules(state);
    }

    /// Copies compiled modules into a new state folder. Returns whether it copied any.
    fn copy_compiled_modules(&self) -> bool {
        let were_copied = crate::modules::copy_compiled_modules(&self.state());
        if were_copied && self.shares_lazy_modules {
            crate::modules::copy_lazy_modules(&self.state());
        }
        were_copied
    }

    /// Returns the host path of a file below `shared`.
    #[must_use]
    pub fn shared(&self, relative_path: &str) -> PathBuf {
        self.workspace().join("shared").join(relative_path)
    }

    /// Writes a file below `shared`, with its parent folders.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn put(&self, relative_path: &str, content: impl AsRef<[u8]>) {
        let path = self.shared(relative_path);
        fs::create_dir_all(path.parent().expect("below shared")).expect("a folder");
        fs::write(path, content).expect("writable");
    }

    /// Returns the bootstrap envelope of a runner in this fixture.
    #[must_use]
    pub fn envelope(&self) -> RunnerBootstrapEnvelope {
        let mut envelope = RunnerBootstrapEnvelope::new(self.workspace(), self.state());
        envelope.policy = Some(self.policy_file());
        envelope.compiler = Some(binary());
        envelope
    }

    /// Returns a builder with the core tools.
    ///
    /// # Errors
    /// The error of the bootstrap.
    pub async fn builder(&self) -> Result<RegistryBuilder, BootstrapError> {
        let were_copied = self.copy_compiled_modules();
        let builder = runtime_builder(&self.envelope()).await;
        match &builder {
            Ok(_) => crate::modules::save_modules(&self.state()),
            // Remove the copied modules again: tests of a refused start check that nothing was created.
            Err(_) => drop(were_copied.then(|| fs::remove_dir_all(self.state()))),
        }
        builder
    }

    /// Returns a registry with the core tools and a shell in a separate sidecar.
    ///
    /// # Panics
    /// If the registry cannot be built.
    pub async fn registry_with_shell(&self) -> ToolRegistry {
        let shell = ShellSource::Own(Arc::new(OwnSidecar::new(binary())));
        self.builder().await.expect("bootstraps").shell(shell).build().expect("builds")
    }

    /// Returns a registry with the core tools.
    ///
    /// # Panics
    /// If the registry cannot be built.
    pub async fn registry(&self) -> ToolRegistry {
        self.builder().await.expect("bootstraps").build().expect("builds")
    }

    /// Returns a registry that also has hostile guests as foreign modules.
    ///
    /// # Panics
    /// If the registry cannot be built.
    pub async fn registry_with(&self, guests: &[&str]) -> ToolRegistry {
        let mut builder = self.builder().await.expect("bootstraps");
        for name in guests {
            let module = crate::guest(name);
            builder =
                builder.module(*name, module, ToolOrigin::ForeignModule).await.expect("describes itself");
        }
        builder.build().expect("builds")
    }

    /// Returns the rows of the audit log, without those about processes.
    ///
    /// # Panics
    /// If a row cannot be read.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        call_rows(&self.state())
    }

    /// Returns all rows of the audit log.
    ///
    /// # Panics
    /// If a row cannot be read.
    #[must_use]
    pub fn all_rows(&self) -> Vec<Row> {
        all_rows(&self.state())
    }
}

/// Returns the rows of a state folder's audit log, without those about processes.
///
/// # Panics
/// If a row cannot be read.
#[must_use]
pub fn call_rows(state: &Path) -> Vec<Row> {
    let is_of_call = |row: &Row| !row.event.concerns_process() && row.event != audit::RowEvent::Model;
    all_rows(state).into_iter().filter(is_of_call).collect()
}

fn all_rows(state: &Path) -> Vec<Row> {
    audit::rows(&audit::log_path(state)).map(|row| row.expect("a readable row")).collect()
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns a caller whose approver approves everything.
#[must_use]
pub fn approving_caller() -> Caller {
    let mut caller = Caller::new("tester", "run");
    caller.approver = Some(Arc::new(ApproveAll));
    caller
}

impl CallOutcome {
    /// Makes one call as an approving caller.
    pub async fn run(registry: &ToolRegistry, tool: &str, arguments: impl Into<Value>) -> Self {
        let arguments: Value = arguments.into();
        Self(registry.execute_with_policy(new_call(tool, arguments.to_string()), &approving_caller()).await)
    }

    /// Returns the result's text.
    ///
    /// # Panics
    /// If the call failed.
    #[track_caller]
    #[must_use]
    pub fn text(&self) -> String {
        match &self.0.outcome {
            ToolOutcome::Output(output) => output.joined_text(),
            other => panic!("expected a result, got {other:?}"),
        }
    }

    /// Returns the error.
    ///
    /// # Panics
    /// If the call succeeded.
    #[track_caller]
    #[must_use]
    pub fn error(&self) -> &ToolError {
        match &self.0.outcome {
            ToolOutcome::Error(error) => error,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    /// Checks the kind and the code of the error, and returns its message.
    ///
    /// # Panics
    /// If they differ.
    #[expect(clippy::must_use_candidate, reason = "most tests want only the assertion")]
    #[track_caller]
    pub fn assert_refused(&self, kind: ToolErrorKind, code: &str) -> String {
        let error = self.error();
        assert_eq!((error.kind(), error.code()), (kind, code), "{error}");
        error.to_string()
    }
}

/// Returns the path of the command line's test binary, which is in the parent of the folder with
/// the test binaries.
///
/// # Panics
/// If it does not exist.
#[must_use]
pub fn binary() -> PathBuf {
    let tests = std::env::current_exe().expect("this program's path");
    let binary = tests.ancestors().nth(2).expect("two folders above").join("portcullis-test");
    assert!(binary.exists(), "there is no `{}`; build the package's binaries", binary.display());
    binary
}
