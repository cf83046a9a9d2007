//! A small fixture for each test: a state folder, mounts, a folder outside, and a session.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test helpers: clippy.toml exempts only test functions"
)]

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use portcullis_confine::{CanaryFile, Layer, PathAccess, probe_kernel};
use portcullis_policy::{HiddenNames, ProtectedPaths};
use portcullis_shell_daemon::{
    CancelReceiver, CancelSender, CommandEnd, CommandRequest, Completion, Ending, OutputChunk, OutputStream,
    PostureChoice, SessionConfig, SessionMount, SessionSpec, SessionToolchain, ShellError, ShellSession,
};
use portcullis_testing::kernel_is_required;
use portcullis_types::ShellPosture;
use tempfile::TempDir;

/// The folders of one test: `state/`, `shared/` (writable, the home), `tmp/` (writable), `read/` (with `file`) and
/// `vault/` (with `secret`, no mount).
pub(crate) struct Fixture {
    root: TempDir,
    posture: PostureChoice,
    waived: Vec<Layer>,
}

impl Fixture {
    /// Runs a test in each posture that works on this machine.
    #[track_caller]
    pub(crate) fn for_each_posture(test: impl Fn(&Self)) {
        Self::for_each_confined_posture(&test);
        println!("in the posture minimal, with nothing but limits and no privileges");
        test(&Self::minimal());
    }

    /// A fixture with limits and no privileges, and without any other layer. A refusal in it comes from the machine
    /// itself.
    pub(crate) fn minimal() -> Self {
        let mut fixture = Self::make(PostureChoice::Exactly(ShellPosture::Minimal));
        fixture.waived = vec![Layer::Landlock, Layer::Seccomp];
        fixture
    }

    /// Runs a test in each posture that works on this machine and keeps commands from files outside.
    #[track_caller]
    pub(crate) fn for_each_confined_posture(test: impl Fn(&Self)) {
        for fixture in [Self::strong(), Self::new()].into_iter().flatten() {
            println!("in the posture {:?}", fixture.posture);
            test(&fixture);
        }
    }

    /// A fixture with the posture `strong`. `None` if the machine cannot hold such a session and that is acceptable.
    pub(crate) fn strong() -> Option<Self> {
        let fixture = Self::make(PostureChoice::AtLeast(ShellPosture::Strong));
        match ShellSession::start(&fixture.spec()) {
            Ok(_) => Some(fixture),
            Err(error) => {
                assert!(!kernel_is_required(), "this machine must hold a strong session, but {error}");
                println!("skipped: {error}");
                None
            }
        }
    }

    /// A fixture without namespaces. `None` if the kernel cannot hold a session and that is acceptable.
    pub(crate) fn new() -> Option<Self> {
        let kernel = probe_kernel();
        let missing = Layer::PROCESS.into_iter().find_map(|layer| kernel.missing(layer));
        if let Some(reason) = missing {
            assert!(!kernel_is_required(), "this machine must hold a session, but {reason}");
            println!("skipped: {reason}");
            return None;
        }
        Some(Self::make(PostureChoice::Exactly(ShellPosture::Contained)))
    }

    /// A fixture with a given posture.
    pub(crate) fn make(posture: PostureChoice) -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["state", "shared", "tmp", "read", "vault"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        for file in ["read/file", "vault/secret"] {
            std::fs::write(root.path().join(file), file).unwrap();
        }
        Self { root, posture, waived: Vec::new() }
    }

    /// A fixture with all layers that work, except these. `None` if the machine cannot hold a strong session.
    pub(crate) fn without(layers: &[Layer]) -> Option<Self> {
        let mut fixture = Self::strong()?;
        fixture.posture = PostureChoice::AtLeast(ShellPosture::Minimal);
        fixture.waived = layers.to_vec();
        println!("without {layers:?}");
        Some(fixture)
    }

    /// Whether sessions have a separate file tree.
    pub(crate) fn has_tree(&self) -> bool {
        let is_left_out = self.waived.iter().any(|layer| TREE.contains(layer));
        matches!(self.posture, PostureChoice::AtLeast(_)) && !is_left_out
    }

    /// The path by which a session sees a path below a mount.
    pub(crate) fn inside(&self, relative: &str) -> PathBuf {
        if self.has_tree() { Path::new("/").join(relative) } else { self.path(relative) }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    pub(crate) fn spec(&self) -> SessionSpec {
        let mount =
            |name: &str, access| SessionMount { name: name.to_owned(), path: self.path(name), access };
        SessionSpec {
            launcher: Path::new(env!("CARGO_BIN_EXE_portcullis-shell-test")).to_owned(),
            mounts: vec![
                mount("shared", PathAccess::Write),
                mount("tmp", PathAccess::Write),
                mount("read", PathAccess::Read),
            ],
            home: "shared".to_owned(),
            toolchain: SessionToolchain::default(),
            environment: Vec::new(),
            limits: SessionConfig::default().process_limits(),
            group: None,
            canary: CanaryFile::create(&self.path("state")).unwrap(),
            posture: self.posture,
            waived: self.waived.clone(),
            watch_changes: false,
            network: None,
            protect: ProtectedPaths::parse([".git/hooks", ".bashrc", ".vscode/tasks.json"]).unwrap(),
            hide: HiddenNames::default(),
        }
    }

    pub(crate) fn session(&self) -> Session {
        Session(ShellSession::start(&self.spec()).unwrap())
    }
}

/// The layers that a separate file tree needs.
const TREE: [Layer; 2] = [Layer::MountNamespace, Layer::PidNamespace];

/// A session with short methods for tests.
pub(crate) struct Session(pub(crate) ShellSession);

impl Session {
    /// Runs a command that must end by itself, with any code, within ten seconds.
    #[track_caller]
    pub(crate) fn run(&mut self, command: &str) -> CommandResult {
        let result = self.attempt(request(command)).unwrap_or_else(|error| panic!("{command}: {error:?}"));
        assert_eq!(result.end.completion, Completion::Finished, "{command}: {result:?}");
        result
    }

    /// The output of a command that must succeed.
    #[track_caller]
    pub(crate) fn output(&mut self, command: &str) -> String {
        let result = self.run(command);
        assert_eq!(
            (result.end.ending, result.end.jobs_left),
            (Ending::Code(0), false),
            "{command}: {result:?}"
        );
        result.stdout
    }

    pub(crate) fn attempt(
        &mut self,
        (request, _canceller): (CommandRequest, CancelSender),
    ) -> Result<CommandResult, ShellError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let end = self.0.run(&request, &mut |chunk: OutputChunk<'_>| match chunk.stream {
            OutputStream::Stdout => stdout.extend_from_slice(chunk.bytes),
            OutputStream::Stderr => stderr.extend_from_slice(chunk.bytes),
        })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(CommandResult { end, stdout: text(stdout), stderr: text(stderr) })
    }
}

#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) end: CommandEnd,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn request(command: &str) -> (CommandRequest, CancelSender) {
    let (cancellation, canceller) = CancelReceiver::new().unwrap();
    let request = CommandRequest {
        command: command.to_owned(),
        workdir: None,
        stdin: Vec::new(),
        input: None,
        timeout: Duration::from_secs(10),
        max_processes: 1000,
        max_output_bytes: 64 << 20,
        cancellation,
    };
    (request, canceller)
}

pub(crate) fn request_with_timeout(command: &str, timeout: Duration) -> (CommandRequest, CancelSender) {
    let (mut request, canceller) = request(command);
    request.timeout = timeout;
    (request, canceller)
}

/// The processes whose command line holds `marker`.
pub(crate) fn processes_with(marker: &str) -> Vec<String> {
    let mut command_lines = Vec::new();
    for folder in std::fs::read_dir("/proc").unwrap().flatten() {
        let command_line = std::fs::read(folder.path().join("cmdline")).unwrap_or_default();
        let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
        if command_line.contains(marker) && folder.file_name() != *std::process::id().to_string() {
            command_lines.push(command_line);
        }
    }
    command_lines
}

/// Time limits for a step that must happen before the limit. The step's duration depends on the machine, so each limit
/// is twice the previous limit. All limits are shorter than the sleeps of commands that must not end by themselves.
pub(crate) fn doubling_timeouts(first: Duration) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(first), |limit| Some(*limit * 2))
        .take_while(|limit| *limit < Duration::from_secs(30))
}

/// Waits for a condition that must become true within twenty seconds. Commands that must be killed sleep for longer.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// A word that no other test uses, to find processes by.
pub(crate) fn marker(test: &str) -> String {
    format!("portcullis-{test}-{}", std::process::id())
}
