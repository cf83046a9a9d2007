//! [`World`]: a workspace, a state folder and a registry for one test.

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
use portcullis_types::{RunnerBootstrapEnvelope, ToolError, ToolErrorKind};
use serde_json::Value;
use tempfile::TempDir;

/// The world of one test; its folders are removed on drop.
#[derive(Debug)]
pub struct World {
    root: TempDir,
    policy: String,
    /// Whether it takes part in sharing modules that are compiled at their first call.
    shares_later_modules: bool,
}

impl Drop for World {
    fn drop(&mut self) {
        if self.shares_later_modules {
            crate::modules::keep_later(&self.state());
        }
    }
}

/// The result of a call, with accessors for assertions.
#[derive(Debug)]
pub struct CallOutcome(pub ToolResult);

impl World {
    /// An empty workspace under the shipped policy.
    ///
    /// # Panics
    /// If the folders cannot be created.
    #[must_use]
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let world = Self { root, policy: DEFAULT_POLICY.to_owned(), shares_later_modules: false };
        for mount in ["shared", "tmp", "vault"] {
            fs::create_dir_all(world.workspace().join(mount)).expect("a mount's folder");
        }
        world
    }

    /// Shares modules that are compiled at their first call, such as that of the web's tools, with the other worlds that
    /// say so: compiling them takes seconds.
    #[must_use]
    pub fn with_shared_modules(mut self) -> Self {
        self.shares_later_modules = true;
        self
    }

    /// Adds a text to the policy, such as an entry for a tool.
    #[must_use]
    pub fn with_policy(mut self, text: &str) -> Self {
        self.policy.push('\n');
        self.policy.push_str(text);
        self
    }

    /// Replaces a part of the policy's text; the part must be there.
    ///
    /// # Panics
    /// If the part is missing.
    #[must_use]
    pub fn with_policy_edit(mut self, from: &str, to: &str) -> Self {
        assert!(self.policy.contains(from), "the policy has no `{from}`");
        self.policy = self.policy.replace(from, to);
        self
    }

    /// The folder that contains workspace and state.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The workspace.
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
    /// If it cannot be written.
    #[must_use]
    pub fn policy_file(&self) -> PathBuf {
        let path = self.root.path().join("policy.toml");
        fs::write(&path, &self.policy).expect("writable");
        path
    }

    /// The command line's options for this world; writes the policy file. A new state folder begins with the modules
    /// that an earlier world has compiled, so that not every program compiles the core tools.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn options(&self) -> [OsString; 6] {
        let _ = self.lend();
        let [workspace, state, policy] =
            [self.workspace(), self.state(), self.policy_file()].map(OsString::from);
        ["--workspace".into(), workspace, "--state".into(), state, "--policy".into(), policy]
    }

    /// Copies compiled modules into a new state folder; returns whether it did.
    fn lend(&self) -> bool {
        let lent = crate::modules::lend(&self.state());
        if lent && self.shares_later_modules {
            crate::modules::lend_later(&self.state());
        }
        lent
    }

    /// The host path of a file below `shared`.
    #[must_use]
    pub fn shared(&self, below: &str) -> PathBuf {
        self.workspace().join("shared").join(below)
    }

    /// Writes a file below `shared`, with its parent folders.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn put(&self, below: &str, content: impl AsRef<[u8]>) {
        let path = self.shared(below);
        fs::create_dir_all(path.parent().expect("below shared")).expect("a folder");
        fs::write(path, content).expect("writable");
    }

    /// The bootstrap envelope of a runner in this world.
    #[must_use]
    pub fn envelope(&self) -> RunnerBootstrapEnvelope {
        let mut envelope = RunnerBootstrapEnvelope::new(self.workspace(), self.state());
        envelope.policy = Some(self.policy_file());
        envelope.compiler = Some(binary());
        envelope
    }

    /// A builder with the core tools.
    ///
    /// # Errors
    /// The error of the bootstrap.
    pub async fn builder(&self) -> Result<RegistryBuilder, BootstrapError> {
        let lent = self.lend();
        let builder = runtime_builder(&self.envelope()).await;
        match &builder {
            Ok(_) => crate::modules::keep(&self.state()),
            // Tests of a refusal check that nothing was created.
            Err(_) => drop(lent.then(|| fs::remove_dir_all(self.state()))),
        }
        builder
    }

    /// A registry with the core tools and a shell, in a separate sidecar.
    ///
    /// # Panics
    /// If it cannot be built.
    pub async fn registry_with_shell(&self) -> ToolRegistry {
        let place = ShellSource::Own(Arc::new(OwnSidecar::new(binary())));
        self.builder().await.expect("bootstraps").shell(place).build().expect("builds")
    }

    /// A registry with the core tools.
    ///
    /// # Panics
    /// If it cannot be built.
    pub async fn registry(&self) -> ToolRegistry {
        self.builder().await.expect("bootstraps").build().expect("builds")
    }

    /// A registry that also has hostile guests, as foreign modules.
    ///
    /// # Panics
    /// If it cannot be built.
    pub async fn registry_with(&self, guests: &[&str]) -> ToolRegistry {
        let mut builder = self.builder().await.expect("bootstraps");
        for name in guests {
            let module = crate::guest(name);
            builder =
                builder.module(*name, module, ToolOrigin::ForeignModule).await.expect("describes itself");
        }
        builder.build().expect("builds")
    }

    /// The rows of the audit log.
    ///
    /// # Panics
    /// If a row cannot be read.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let rows = audit::rows(&audit::log_path(&self.state()));
        rows.map(|row| row.expect("a readable row")).collect()
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// A caller whose approver approves everything.
#[must_use]
pub fn approving() -> Caller {
    let mut caller = Caller::new("tester", "run");
    caller.approver = Some(Arc::new(ApproveAll));
    caller
}

impl CallOutcome {
    /// Makes one call as an approving caller.
    pub async fn of(registry: &ToolRegistry, tool: &str, arguments: impl Into<Value>) -> Self {
        let arguments: Value = arguments.into();
        Self(registry.execute_with_policy(new_call(tool, arguments.to_string()), &approving()).await)
    }

    /// The result's text.
    ///
    /// # Panics
    /// If there is an error instead.
    #[track_caller]
    #[must_use]
    pub fn text(&self) -> String {
        match &self.0.outcome {
            Ok(output) => output.joined_text(),
            Err(error) => panic!("expected a result, got {error:?}"),
        }
    }

    /// The error.
    ///
    /// # Panics
    /// If there is a result instead.
    #[track_caller]
    #[must_use]
    pub fn error(&self) -> &ToolError {
        match &self.0.outcome {
            Err(error) => error,
            Ok(output) => panic!("expected an error, got {:?}", output.joined_text()),
        }
    }

    /// Asserts kind and code of the error, and returns its message.
    ///
    /// # Panics
    /// If they differ.
    #[expect(clippy::must_use_candidate, reason = "most tests want the assertion alone")]
    #[track_caller]
    pub fn refused(&self, kind: ToolErrorKind, code: &str) -> String {
        let error = self.error();
        assert_eq!((error.kind(), error.code()), (kind, code), "{error}");
        error.to_string()
    }
}

/// The command line's test binary, in the parent of the folder with the tests' binaries.
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

/// Returns whether a kernel feature is there, so that a test without it can skip. On CI, or with
/// `PORTCULLIS_REQUIRE_KERNEL=1`, a missing feature is a failure.
///
/// # Panics
/// On CI, or with `PORTCULLIS_REQUIRE_KERNEL=1`, if the feature is missing.
#[must_use]
pub fn kernel_or_skip(feature: &str, is_there: bool) -> bool {
    if is_there {
        return true;
    }
    let required =
        std::env::var_os("CI").is_some() || std::env::var_os("PORTCULLIS_REQUIRE_KERNEL").is_some();
    assert!(!required, "this kernel lacks {feature}, which the test needs");
    false
}
