//! A column of the table: a sidecar in one posture, of one user, in one environment, with a session.
#![expect(clippy::disallowed_methods, reason = "the sidecar is a program")]

use std::{
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

use portcullis_shell_daemon::{EMBEDDED_ENTRY, PostureChoice};
use portcullis_testing::kernel_environment::KernelEnvironment;
use portcullis_types::ShellPosture;

use super::listeners::Listeners;
use crate::{
    fixture::{Fixture, marker},
    server::sidecar::{
        CommandResult, Credentials, Embedded, Shell, client, config, exec, run, session, setup_line,
        spawn_embedded,
    },
};
use portcullis_shell_protocol::{Exited, HealthRequest};

/// One sidecar against which every case is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) posture: ShellPosture,
    pub(crate) user: SidecarUser,
    pub(crate) outer: KernelEnvironment,
}

/// The owner of the sidecar, the workspace and the files near it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SidecarUser {
    Root,
    Ordinary,
}

impl Column {
    /// The columns of a posture. Only root can run a sidecar as another user. Any other user is already an ordinary
    /// user.
    pub(crate) fn for_posture(posture: ShellPosture) -> Vec<Self> {
        let environments: &[KernelEnvironment] = match posture {
            ShellPosture::Contained => &[KernelEnvironment::Nothing, KernelEnvironment::StockContainer],
            // Test the weakest form of `minimal`: limits and no privileges, without any other layer.
            ShellPosture::Minimal => &[KernelEnvironment::BARE],
            ShellPosture::Strong | ShellPosture::None => &[KernelEnvironment::Nothing],
        };
        let users: &[SidecarUser] = if rustix::process::geteuid().is_root() {
            &[SidecarUser::Root, SidecarUser::Ordinary]
        } else {
            &[SidecarUser::Ordinary]
        };
        let columns = environments
            .iter()
            .flat_map(|outer| users.iter().map(move |user| Self { posture, user: *user, outer: *outer }));
        columns.collect()
    }

    pub(crate) fn all() -> Vec<Self> {
        ShellPosture::ALL.into_iter().flat_map(Self::for_posture).collect()
    }
}

/// A running sidecar, its session, and the fixture around it.
pub(crate) struct TrialSetup {
    pub(crate) fixture: Fixture,
    pub(crate) listeners: Listeners,
    pub(crate) sidecar: Embedded,
    pub(crate) shell: Shell,
    pub(crate) session: String,
    pub(crate) mark: String,
}

impl TrialSetup {
    /// `None` where the machine cannot hold such a session, if that is acceptable here.
    pub(crate) async fn new(column: Column, test: &str) -> Option<Self> {
        let is_possible = match column.posture {
            ShellPosture::Strong => Fixture::strong().is_some(),
            ShellPosture::Contained => Fixture::new().is_some(),
            ShellPosture::Minimal | ShellPosture::None => true,
        };
        if !is_possible {
            return None;
        }
        println!("{column:?}");
        let fixture = Fixture::make(PostureChoice::Exactly(column.posture));
        let mark =
            marker(&format!("{test}-{:?}-{}", column.user, fixture.path("").display()).replace('/', "-"));
        fill(&fixture);
        let listeners = Listeners::new(&fixture, &mark);
        let mut command = sidecar_command(&fixture, column.user);
        add_setuid_program(&fixture);
        let (sidecar, mut stream) = column.outer.start(|| spawn_embedded(&mut command));
        let mut config = config(&fixture);
        config.posture = PostureChoice::Exactly(column.posture);
        config.protected =
            [".git/hooks", ".git/config", ".git/commondir", ".bashrc", ".envrc", ".vscode/tasks.json"]
                .map(str::to_owned)
                .into();
        config.session.memory_bytes = 256 << 20;
        config.session.file_bytes = 8 << 20;
        config.session.descriptors = 256;
        config.session.processes = 40;
        config.session.output_bytes = 1 << 20;
        std::io::Write::write_all(&mut stream, setup_line(&config).as_bytes()).unwrap();
        let mut shell = client(stream, Credentials::good()).await;
        let health = shell.health(HealthRequest::default()).await.unwrap().into_inner().posture.unwrap();
        assert_eq!(health.posture, column.posture.as_str(), "{health:?}");
        let session = session(&mut shell).await;
        Some(Self { fixture, listeners, sidecar, shell, session, mark })
    }

    /// Runs a script in a new subshell, in the session's home.
    pub(crate) async fn attempt(&mut self, script: &str, timeout_ms: u64) -> CommandResult {
        let command = format!("cd; (\n{script}\n)");
        let request = portcullis_shell_protocol::ExecRequest { timeout_ms, ..exec(&self.session, &command) };
        run(&mut self.shell, request).await.unwrap_or_else(|error| panic!("{script}: {error:?}"))
    }

    /// Replaces all words in a script.
    pub(crate) fn script(&self, script: &str) -> String {
        let path = |name: &str| self.fixture.path(name).display().to_string();
        let mut words = vec![
            ("root", self.fixture.path("").display().to_string().trim_end_matches('/').to_owned()),
            ("vault", path("vault")),
            ("state", path("state")),
            ("swapped", "swapped".to_owned()),
            ("daemon", self.sidecar.child.id().to_string()),
            ("mark", self.mark.clone()),
        ];
        words.extend(self.listeners.names.iter().cloned());
        words.extend(CALLS.iter().map(|(name, number)| (*name, number.to_string())));
        let mut text = script.to_owned();
        for (word, meaning) in words {
            text = text.replace(&format!("@{word}@"), &meaning);
        }
        text
    }
}

/// Makes the targets of the attacks.
fn fill(fixture: &Fixture) {
    for folder in ["shared/.git/hooks", "shared/deep/er", "shared/.vscode"] {
        std::fs::create_dir_all(fixture.path(folder)).unwrap();
    }
    for file in [
        "shared/.git/hooks/pre-commit",
        "shared/deep/er/.bashrc",
        "shared/.envrc",
        "shared/.vscode/tasks.json",
        "shared/read-me",
        "shared/plain-text",
        "vault/prey",
        "read/other",
    ] {
        std::fs::write(fixture.path(file), "old\n").unwrap();
    }
    std::fs::write(fixture.path("vault/linked"), "old\n").unwrap();
    std::fs::hard_link(fixture.path("vault/linked"), fixture.path("shared/planted")).unwrap();
}

/// The command of a sidecar that runs as the given user, who owns everything in the fixture.
pub(crate) fn sidecar_command(fixture: &Fixture, user: SidecarUser) -> Command {
    if user == SidecarUser::Root || !rustix::process::geteuid().is_root() {
        let mut command = Command::new(SHELLD);
        command.arg(EMBEDDED_ENTRY);
        return command;
    }
    let program = fixture.path("program");
    put_program(SHELLD, &program);
    give(&fixture.path(""), &program);
    let mut command = Command::new(program);
    command.arg(EMBEDDED_ENTRY).uid(65534).gid(65534);
    command
}

/// Gives everything below a folder to an ordinary user, except the program.
fn give(path: &Path, program: &Path) {
    if path == program {
        return;
    }
    std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        for entry in std::fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), program);
        }
    }
}

/// Puts a program where every user can start it: as a hard link, or as a copy if linking fails.
pub(crate) fn put_program(program: &str, path: &Path) {
    if std::fs::hard_link(program, path).is_err() {
        install("755", program, path);
    }
}

/// Adds a set-user-ID program that any user can run as root, where such a program can be made.
fn add_setuid_program(fixture: &Fixture) {
    install("4755", "/usr/bin/id", &fixture.path("shared/setuid"));
}

/// Lets another program make the copy. While a process of this test program has the copy open for writing, no process
/// can execute it, and a new process of another test would inherit the open file.
fn install(mode: &str, program: &str, path: &Path) {
    let made = Command::new("install").args(["-m", mode, program]).arg(path).status();
    assert!(made.unwrap().success());
}

/// Whether the sidecar killed the command.
pub(crate) fn is_killed(exited: &Exited) -> bool {
    !exited.interruption.is_empty()
}

const SHELLD: &str = env!("CARGO_BIN_EXE_portcullis-shelld");

/// System calls that no program makes for a script.
const CALLS: [(&str, libc::c_long); 15] = [
    ("add_key", libc::SYS_add_key),
    ("bpf", libc::SYS_bpf),
    ("clone", libc::SYS_clone),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("keyctl", libc::SYS_keyctl),
    ("memfd_create", libc::SYS_memfd_create),
    ("mmap", libc::SYS_mmap),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("ptrace", libc::SYS_ptrace),
    ("read", libc::SYS_read),
    ("setns", libc::SYS_setns),
    ("setxattr", libc::SYS_setxattr),
    ("userfaultfd", libc::SYS_userfaultfd),
];
