//! A small world for each test: a state folder, mounts, a folder outside, and a session.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code, which clippy.toml lets off by function only"
)]

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use portcullis_confine::{Canary, Layer, PathAccess, probe_kernel};
use portcullis_policy::ProtectedPaths;
use portcullis_shell_daemon::{
    Cancellation, Canceller, CommandEnd, CommandRequest, Completion, Ending, OutputChunk, OutputStream,
    PostureChoice, SessionLimits, SessionMount, SessionSpec, ShellError, ShellSession,
};
use portcullis_types::ShellPosture;
use tempfile::TempDir;

/// `state/`, `shared/` (writable, the home), `tmp/` (writable), `read/` (with `file`), `vault/` (with
/// `secret`, no mount).
pub(crate) struct World {
    root: TempDir,
    posture: PostureChoice,
    waived: Vec<Layer>,
}

impl World {
    /// Runs a test in each posture that works here.
    #[track_caller]
    pub(crate) fn each(test: impl Fn(&Self)) {
        Self::each_confined(&test);
        println!("in the posture minimal, with nothing but limits and no privileges");
        test(&Self::bare());
    }

    /// With limits and no privileges, and without any other layer: a refusal here comes from the machine
    /// itself.
    pub(crate) fn bare() -> Self {
        let mut world = Self::make(PostureChoice::Exactly(ShellPosture::Minimal));
        world.waived = vec![Layer::Landlock, Layer::Seccomp];
        world
    }

    /// Runs a test in each posture that works here and keeps commands from files outside.
    #[track_caller]
    pub(crate) fn each_confined(test: impl Fn(&Self)) {
        for world in [Self::strong(), Self::new()].into_iter().flatten() {
            println!("in the posture {:?}", world.posture);
            test(&world);
        }
    }

    /// With `strong` only. `None` where the machine cannot hold such a session, if that is acceptable here.
    pub(crate) fn strong() -> Option<Self> {
        let world = Self::make(PostureChoice::AtLeast(ShellPosture::Strong));
        match ShellSession::start(&world.spec()) {
            Ok(_) => Some(world),
            Err(error) => {
                assert!(!is_required(), "this machine must hold a strong session, but {error}");
                println!("skipped: {error}");
                None
            }
        }
    }

    /// Without namespaces. `None` where the kernel cannot hold a session, if that is acceptable here.
    pub(crate) fn new() -> Option<Self> {
        let kernel = probe_kernel();
        let missing = Layer::PROCESS.into_iter().find_map(|layer| kernel.missing(layer));
        if let Some(reason) = missing {
            assert!(!is_required(), "this machine must hold a session, but {reason}");
            println!("skipped: {reason}");
            return None;
        }
        Some(Self::make(PostureChoice::Exactly(ShellPosture::Contained)))
    }

    /// With a given posture.
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

    /// With all layers that work except these; only where the machine can hold a strong session.
    pub(crate) fn without(layers: &[Layer]) -> Option<Self> {
        let mut world = Self::strong()?;
        world.posture = PostureChoice::AtLeast(ShellPosture::Minimal);
        world.waived = layers.to_vec();
        println!("without {layers:?}");
        Some(world)
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
            environment: Vec::new(),
            limits: SessionLimits::default().of_each_process(),
            group: None,
            canary: Canary::create(&self.path("state")).unwrap(),
            posture: self.posture,
            waived: self.waived.clone(),
            network: None,
            protect: ProtectedPaths::parse([".git/hooks", ".bashrc", ".vscode/tasks.json"]).unwrap(),
        }
    }

    pub(crate) fn session(&self) -> Session {
        Session(ShellSession::start(&self.spec()).unwrap())
    }
}

/// Without these layers a session has no separate file tree.
const TREE: [Layer; 2] = [Layer::MountNamespace, Layer::PidNamespace];

fn is_required() -> bool {
    std::env::var_os("CI").is_some() || std::env::var_os("PORTCULLIS_REQUIRE_KERNEL").is_some()
}

/// A session with short methods for tests.
pub(crate) struct Session(pub(crate) ShellSession);

impl Session {
    /// Runs a command that must end by itself, with any code, within ten seconds.
    #[track_caller]
    pub(crate) fn run(&mut self, command: &str) -> Ran {
        let ran = self.attempt(request(command)).unwrap_or_else(|error| panic!("{command}: {error:?}"));
        assert_eq!(ran.end.completion, Completion::Whole, "{command}: {ran:?}");
        ran
    }

    /// The output of a command that must succeed.
    #[track_caller]
    pub(crate) fn output(&mut self, command: &str) -> String {
        let ran = self.run(command);
        assert_eq!((ran.end.ending, ran.end.jobs_left), (Ending::Code(0), false), "{command}: {ran:?}");
        ran.stdout
    }

    pub(crate) fn attempt(
        &mut self,
        (request, _canceller): (CommandRequest, Canceller),
    ) -> Result<Ran, ShellError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let end = self.0.run(&request, &mut |chunk: OutputChunk<'_>| match chunk.stream {
            OutputStream::Stdout => stdout.extend_from_slice(chunk.bytes),
            OutputStream::Stderr => stderr.extend_from_slice(chunk.bytes),
        })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Ran { end, stdout: text(stdout), stderr: text(stderr) })
    }
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) end: CommandEnd,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn request(command: &str) -> (CommandRequest, Canceller) {
    let (cancellation, canceller) = Cancellation::new().unwrap();
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

pub(crate) fn with_timeout(command: &str, timeout: Duration) -> (CommandRequest, Canceller) {
    let (mut request, canceller) = request(command);
    request.timeout = timeout;
    (request, canceller)
}

/// The processes whose command line holds `marker`.
pub(crate) fn processes_with(marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(folder.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(marker) && folder.file_name() != *std::process::id().to_string() {
            found.push(line);
        }
    }
    found
}

/// Time limits for a step that must happen before the limit. How long it takes depends on the machine, so
/// each limit is twice the one before. All are shorter than the sleeps of commands that must not end by
/// themselves.
pub(crate) fn ever_longer(first: Duration) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(first), |limit| Some(*limit * 2))
        .take_while(|limit| *limit < Duration::from_secs(30))
}

/// Waits for a condition that must become true within twenty seconds: less than the sleeps of commands that
/// must be killed.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
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
