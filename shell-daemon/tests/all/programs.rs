//! Whole programs that hold a session: as an ordinary user, in a stock container, and after being killed.
#![expect(clippy::disallowed_methods, reason = "the tests start the programs that they are about")]
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    io::Read as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::{Command, Output, Stdio},
};

use portcullis_testing::enter_stock_container;

use crate::{
    fixture::{Fixture, marker, processes_with, wait_until},
    matrix::column::put_program,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_portcullis-shell-test");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn assert_works(output: &Output, posture: &str) {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), stdout.as_str()), (Some(7), "on\n"), "{stderr}");
    assert!(stderr.starts_with(&format!("{posture}(limits=enforced,privileges=enforced,")), "{stderr}");
    assert!(stderr.contains(",landlock=") && stderr.contains(",seccomp=enforced"), "{stderr}");
}

/// Commands that must work, and three that must fail: each of these would change the output or the code.
fn script(fixture: &Fixture) -> String {
    format!(
        "echo on; echo x > file; cat {} 2>/dev/null; (echo x > /dev/tcp/127.0.0.1/1) 2>&1 | grep -i refused; \
         unshare -U echo free 2>/dev/null; exit 7",
        fixture.path("vault/secret").display()
    )
}

/// The program as a user without privileges, in a fixture that belongs to that user.
fn ordinary_user(fixture: &Fixture) -> Command {
    // Only root can become another user. Any other user is already an ordinary user.
    if !rustix::process::geteuid().is_root() {
        let mut program = Command::new(PROGRAM);
        program.arg(fixture.path(""));
        return program;
    }
    for folder in ["state", "state/canary", "shared"] {
        if !fixture.path(folder).exists() {
            continue;
        }
        std::os::unix::fs::chown(fixture.path(folder), Some(65534), Some(65534)).unwrap();
    }
    std::fs::set_permissions(fixture.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program_path = fixture.path("program");
    if !program_path.exists() {
        put_program(PROGRAM, &program_path);
    }
    let mut program = Command::new("setpriv");
    let ids = |who| format!("--{who}=65534");
    program.args([ids("reuid"), ids("regid"), "--clear-groups".to_owned()]);
    program.arg(program_path).arg(fixture.path(""));
    program
}

#[test]
fn an_ordinary_user_has_a_session() {
    let Some(fixture) = Fixture::new() else { return };
    let output = ordinary_user(&fixture).arg(script(&fixture)).arg("=contained").output().unwrap();
    assert_works(&output, "contained");
}

#[test]
fn a_sidecar_that_hides_what_it_makes_has_a_strong_session() {
    let Some(fixture) = Fixture::strong() else { return };
    let mut shell = Command::new("sh");
    let output = shell
        .args(["-c", "umask 077; exec \"$0\" \"$@\"", PROGRAM])
        .arg(fixture.path(""))
        .args([&script(&fixture), "strong"])
        .output()
        .unwrap();
    assert_works(&output, "strong");
}

#[test]
fn an_ordinary_user_has_a_strong_session() {
    let Some(fixture) = Fixture::strong() else { return };
    let script = script(&fixture);
    let output = ordinary_user(&fixture).arg(&script).arg("strong").output().unwrap();
    assert_works(&output, "strong");
    // Inside as outside, the user is the owner of the workspace, and no other user is mapped.
    let who = "[[ $(id -u) == $(stat -c %u /shared) && $(wc -l < /proc/self/uid_map) == 1 ]] && echo x > made && exit 3";
    let output = ordinary_user(&fixture).arg(who).arg("strong").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let owner = |name: &str| std::fs::metadata(fixture.path(name)).unwrap().uid();
    assert_eq!(owner("shared/made"), owner("shared"));
    let marker = marker("ordinary");
    let command = format!(
        "(setsid bash -c 'echo x > up; exec -a {marker} sleep 30' &) ; until [ -e up ]; do :; done; exit 4"
    );
    let output = ordinary_user(&fixture).arg(command).arg("strong").output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert_eq!(processes_with(&marker), Vec::<String>::new(), "what it left is killed");
}

/// This is the situation in a container whose runtime masks parts of `/proc`: the kernel refuses a new `/proc` without
/// the masks.
#[test]
fn other_layers_hold_when_the_file_tree_is_refused() {
    let Some(fixture) = Fixture::strong() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let program = ordinary_user(&fixture);
    let masked = |posture: &str| {
        Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c"])
            .args(["mount -t tmpfs none /proc/sys && exec \"$0\" \"$@\""])
            .arg(program.get_program())
            .args(program.get_args())
            .args([&script(&fixture), posture])
            .output()
            .unwrap()
    };
    let output = masked("contained");
    assert_works(&output, "contained");
    let stderr = text(&output.stderr);
    let layers = "pid_ns=enforced,ipc_ns=enforced,uts_ns=enforced,net_ns=enforced,mount_ns=missing";
    assert!(stderr.contains(layers), "{stderr}");
    let stderr = text(&masked("strong").stderr);
    assert!(stderr.contains("MountNamespace") && stderr.contains("--security-opt unmask=ALL"), "{stderr}");
}

/// This is the situation in a container that allows namespaces but does not let its root mount file systems.
#[test]
fn root_without_all_its_privileges_has_the_same_sessions() {
    if Fixture::strong().is_none() || !rustix::process::geteuid().is_root() {
        return;
    }
    let run = |dropped: &str, owner: Option<u32>, posture: &str| {
        let fixture = Fixture::new().unwrap();
        for folder in ["", "shared"] {
            std::os::unix::fs::chown(fixture.path(folder), owner, owner).unwrap();
        }
        std::fs::set_permissions(fixture.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
        Command::new("setpriv")
            .arg(format!("--bounding-set={dropped}"))
            .arg(PROGRAM)
            .arg(fixture.path(""))
            .args([&script(&fixture), posture])
            .output()
            .unwrap()
    };
    for owner in [None, Some(12345)] {
        assert_works(&run("-sys_admin", owner, "strong"), "strong");
    }
    // Without this capability, root cannot even be mapped. The session is then started without namespaces.
    let output = run("-sys_admin,-setfcap", None, "contained");
    assert_works(&output, "contained");
    assert!(text(&output.stderr).contains("pid_ns=missing"), "{output:?}");
    let stderr = text(&run("-sys_admin,-setfcap", None, "strong").stderr);
    assert!(stderr.contains("stay root, which takes CAP_SETFCAP"), "{stderr}");
}

/// Runs the program where namespaces are refused.
fn in_stock_container(fixture: &Fixture, posture: &str) -> Output {
    std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            enter_stock_container();
            let refused = Command::new("unshare").args(["-U", "true"]).output().unwrap();
            assert!(!refused.status.success(), "the container refuses namespaces");
            Command::new(PROGRAM).arg(fixture.path("")).arg(script(fixture)).arg(posture).output().unwrap()
        });
        started.join().unwrap()
    })
}

#[test]
fn a_stock_container_has_a_session() {
    let Some(fixture) = Fixture::new() else { return };
    for posture in ["contained", "minimal"] {
        assert_works(&in_stock_container(&fixture, posture), "contained");
    }
    assert_works(&in_stock_container(&fixture, "=minimal"), "minimal");
}

#[test]
fn in_a_stock_container_the_parts_missing_for_strong_are_named() {
    let Some(fixture) = Fixture::new() else { return };
    let output = in_stock_container(&fixture, "strong");
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{stderr}");
    assert!(!fixture.path("shared/file").exists(), "nothing ran");
    for word in [
        "PostureUnavailable",
        "Contained",
        "PidNamespace",
        "NetNamespace",
        "MountNamespace",
        "--security-opt seccomp=FILE",
    ] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
}

#[test]
fn a_sidecar_that_is_killed_leaves_nothing() {
    let Some(fixture) = Fixture::new() else { return };
    let marker = marker("daemon");
    let command = format!(
        "echo x >> counter; (setsid bash -c 'exec -a {marker} sleep 30' &) ; echo up; exec -a {marker} sleep 30"
    );
    let mut sidecar = Command::new(PROGRAM)
        .arg(fixture.path(""))
        .arg(command)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    sidecar.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    let sleepers = || processes_with(&marker).iter().filter(|line| line.starts_with(&marker)).count();
    wait_until("both run", || sleepers() == 2);
    sidecar.kill().unwrap();
    sidecar.wait().unwrap();
    wait_until("nothing is left", || processes_with(&marker).is_empty());
    assert_eq!(std::fs::read_to_string(fixture.path("shared/counter")).unwrap(), "x\n", "it ran once");
}
