//! A Temporal server for one test: run as an ordinary user, with an empty home, on a loopback port.

use std::{
    env, fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use portcullis_temporal::Address;
use tempfile::TempDir;

/// The variable with the folder of the server's programs.
const PROGRAMS: &str = "PORTCULLIS_TEMPORAL";

/// The variable that makes a missing server a failure.
const REQUIRED: &str = "PORTCULLIS_REQUIRE_TEMPORAL";

/// How long a server may take to start. A machine under load starts it slowly.
const START: Duration = Duration::from_secs(60);

/// The namespace that every server has.
pub(crate) const NAMESPACE: &str = "default";

/// A server. It ends when this value is dropped.
pub(crate) struct Server {
    child: Child,
    port: u16,
    programs: PathBuf,
    folder: TempDir,
}

impl Server {
    /// Starts a server, or returns `None` if its program is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with further options.
    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        // The server keeps its histories in memory: the tests kill workers, not the server.
        Self::launch("temporal", |port| {
            let words = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"];
            let port = ["--port".to_owned(), port.to_string()];
            words.iter().chain(options).map(|word| (*word).to_owned()).chain(port).collect()
        })
    }

    /// Starts a server whose clock jumps to the next timer when it is idle.
    pub(crate) fn start_skipping_time() -> Option<Self> {
        Self::launch("temporal-test-server", |port| {
            vec![port.to_string(), "--enable-time-skipping".to_owned()]
        })
    }

    fn launch(program: &str, arguments: impl Fn(u16) -> Vec<String>) -> Option<Self> {
        let Some(programs) = env::var_os(PROGRAMS).map(PathBuf::from) else {
            assert!(env::var_os(REQUIRED).is_none(), "{PROGRAMS} is not set, and {REQUIRED} is");
            println!("skipped: there is no Temporal server; `.ci/temporal` installs it");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("temporal").tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("set");
        let user = ordinary_user();
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid)).expect("given");
        }
        let port = free_port();
        let log = fs::File::create(folder.path().join("log")).expect("the file can be made");
        let program = programs.join(program);
        let mut command = as_user(user, &program);
        command.args(arguments(port));
        command
            .env_clear()
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("cloned")).stderr(log);
        let child = command.spawn().expect("starts");
        let mut server = Self { child, port, programs, folder };
        server.wait_until_ready();
        Some(server)
    }

    fn wait_until_ready(&mut self) {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.child.try_wait().expect("asked");
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(ended.is_none(), "the server has ended: {ended:?}: {}", log());
            assert!(start.elapsed() < START, "the server does not listen");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the address at which the server listens.
    pub(crate) fn address(&self) -> Address {
        self.target().parse().expect("an address")
    }

    pub(crate) fn target(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs the server's command line, and returns what it prints.
    pub(crate) fn command_line(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.try_command_line(arguments);
        let stdout = String::from_utf8(stdout).expect("the output is UTF-8");
        assert!(status.success(), "{arguments:?}: {stdout}{}", String::from_utf8_lossy(&stderr));
        stdout
    }

    pub(crate) fn try_command_line(&self, arguments: &[&str]) -> Output {
        let mut command = as_user(ordinary_user(), &self.programs.join("temporal"));
        command.args(arguments).args(["--address", &self.target()]);
        command.env_clear().env("HOME", self.folder.path()).current_dir(self.folder.path());
        command.output().expect("runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ignore the errors: the server may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs as this user.
fn as_user(user: Option<(u32, u32)>, program: &Path) -> Command {
    #[expect(clippy::disallowed_methods, reason = "a test starts the server that it needs")]
    let mut command = match user {
        Some(_) => Command::new("setpriv"),
        None => Command::new(program),
    };
    if let Some((uid, gid)) = user {
        command
            .arg(format!("--reuid={uid}"))
            .arg(format!("--regid={gid}"))
            .arg("--clear-groups")
            .arg(program);
    }
    command
}

/// Returns the ids of `nobody` if this process runs as root.
fn ordinary_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("readable");
    let nobody = users.lines().find(|line| line.starts_with("nobody:")).expect("an ordinary user");
    let fields: Vec<&str> = nobody.split(':').collect();
    Some((fields[2].parse().expect("an id"), fields[3].parse().expect("an id")))
}

/// Returns a port that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
