//! The three backends: a sidecar's sessions, the host, none.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis::OwnSidecar;
use portcullis_testing::{CallOutcome, Fixture, TEST_TIMEOUT, binary};
use portcullis_tools::shell::{SHELL_EXEC, ShellSource};
use portcullis_types::ToolErrorKind;
use serde_json::json;

#[tokio::test]
async fn a_registry_without_a_sidecar_says_why_there_is_no_shell() {
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    let answer = CallOutcome::run(&registry, SHELL_EXEC, json!({"command": "true"})).await;
    let message = answer.assert_refused(ToolErrorKind::Unavailable, "shell_disabled");
    assert!(message.contains("no shell sidecar"), "{message}");
}

#[tokio::test]
async fn the_host_runs_commands_only_on_request_and_says_so_each_time() {
    let fixture = Fixture::new();
    let secret = fixture.root().join("outside");
    fs::write(&secret, "outside\n").expect("writable");
    let shell = ShellSource::Host(Arc::new(OwnSidecar::new(binary())));
    let registry = fixture.builder().await.expect("bootstraps").shell(shell).build().expect("builds");
    let command = json!({"command": format!("cat {}", secret.display())});
    let answer = CallOutcome::run(&registry, SHELL_EXEC, command.clone()).await;
    assert_eq!(answer.text(), "outside\n[ran on the host, unconfined]");
    let posture = fixture.rows().pop().expect("a row").posture.expect("a posture");
    assert!(posture.starts_with("none"), "{posture}");
    // The same command in a confined session.
    let confined = Fixture::new();
    let registry = confined.registry_with_shell().await;
    let answer = CallOutcome::run(&registry, SHELL_EXEC, command).await;
    assert!(!answer.text().contains("outside\n["), "{}", answer.text());
}

#[tokio::test]
async fn a_running_sidecar_is_used_by_socket_and_token() {
    let fixture = Fixture::new();
    let sidecar = RunningSidecar::start(&fixture);
    let registry = sidecar.registry(&fixture, &sidecar.token()).await;
    assert_eq!(CallOutcome::run(&registry, SHELL_EXEC, json!({"command": "echo hi"})).await.text(), "hi\n");
    let wrong_token_file = fixture.root().join("wrong");
    fs::write(&wrong_token_file, "0123456789abcdef0123456789abcdef").expect("writable");
    fs::set_permissions(&wrong_token_file, fs::Permissions::from_mode(0o600)).expect("set");
    let registry = sidecar.registry(&fixture, &wrong_token_file).await;
    let answer = CallOutcome::run(&registry, SHELL_EXEC, json!({"command": "echo > /shared/made"})).await;
    answer.assert_refused(ToolErrorKind::Unavailable, "shell_unavailable");
    assert!(!fixture.shared("made").exists());
}

#[tokio::test]
async fn without_its_sidecar_no_command_runs() {
    let fixture = Fixture::new();
    let sidecar = RunningSidecar::start(&fixture);
    let registry = sidecar.registry(&fixture, &sidecar.token()).await;
    assert_eq!(CallOutcome::run(&registry, SHELL_EXEC, json!({"command": "echo hi"})).await.text(), "hi\n");
    drop(sidecar);
    let command = json!({"command": "echo run >> /shared/runs; echo run >> runs"});
    for _ in 0..2 {
        let answer = CallOutcome::run(&registry, SHELL_EXEC, command.clone()).await;
        assert_eq!(answer.error().kind(), ToolErrorKind::Unavailable, "{answer:?}");
    }
    assert!(!fixture.shared("runs").exists());
}

/// A `portcullis-shelld`, ended on drop.
pub(super) struct RunningSidecar {
    process: Child,
    folder: tempfile::TempDir,
}

/// Resources that a sidecar uses.
#[derive(Debug)]
pub(super) struct SidecarResources {
    pub(super) descriptors: usize,
    pub(super) resident_kib: u64,
    pub(super) children: usize,
}

impl RunningSidecar {
    #[expect(clippy::disallowed_methods, reason = "the sidecar under test")]
    pub(super) fn start(fixture: &Fixture) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("set");
        let token = folder.path().join("token");
        fs::write(&token, "feedfacefeedfacefeedfacefeedface").expect("writable");
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("set");
        let process = Command::new(binary().with_file_name("portcullis-shelld-test"))
            .args(["--socket".as_ref(), folder.path().join("socket").as_os_str()])
            .args(["--token-file".as_ref(), token.as_os_str()])
            .args(["--workspace".as_ref(), fixture.workspace().as_os_str()])
            .args(["--policy".as_ref(), fixture.policy_file().as_os_str()])
            .env("XDG_STATE_HOME", fixture.root().join("shelld-state"))
            // The C library's allocator creates further arenas under contention, and keeps their pages.
            // With a single arena, growth of the sidecar means a leak.
            .env("MALLOC_ARENA_MAX", "1")
            .stdin(Stdio::null())
            .spawn()
            .expect("starts");
        let running = Self { process, folder };
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !running.socket().exists() {
            assert!(Instant::now() < deadline, "the sidecar does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        running
    }

    pub(super) fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Waits until the sidecar has no session.
    pub(super) async fn wait_until_idle(&self) {
        wait_until(|| self.resources().children == 0).await;
    }

    pub(super) fn resources(&self) -> SidecarResources {
        let pid = self.process.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        SidecarResources {
            // Only root can see the sidecar's descriptors.
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
            resident_kib: resident.trim().trim_end_matches(" kB").parse().expect("a number"),
            children: children_of(pid).len(),
        }
    }

    async fn registry(&self, fixture: &Fixture, token_file: &Path) -> portcullis_tools::ToolRegistry {
        let shell = ShellSource::Socket { path: self.socket(), token_file: token_file.to_owned() };
        fixture.builder().await.expect("bootstraps").shell(shell).build().expect("builds")
    }
}

impl Drop for RunningSidecar {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until a condition holds, without blocking the executor.
pub(super) async fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited more than {TEST_TIMEOUT:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the live child processes of a process.
pub(super) fn children_of(parent: u32) -> Vec<rustix::process::Pid> {
    let parent = parent.to_string();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").expect("readable").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        if after_name.split_whitespace().nth(1) == Some(&parent) {
            children.extend(rustix::process::Pid::from_raw(pid));
        }
    }
    children
}
