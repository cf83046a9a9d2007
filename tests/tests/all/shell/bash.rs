//! A bash that is missing or is another program: a call and the doctor say so before anything runs.
#![expect(clippy::disallowed_methods, reason = "the programs under test")]

use std::{
    fs,
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use portcullis_testing::{World, binary};
use serde_json::{Value, json};

use crate::modules::{stderr, stdout};

/// Runs the program with this file mounted as `/bin/bash`. Returns `None` where that is not possible.
#[expect(clippy::print_stdout, reason = "a test that skips says why")]
fn with_bash(world: &World, bash: &Path, arguments: &[&str]) -> Option<Output> {
    let real = place_of("/bin/bash");
    let script = "mount --bind \"$1\" \"$2\" || exit 99; shift 2; exec \"$@\"";
    let map: &[&str] = if rustix::process::geteuid().is_root() { &["-m"] } else { &["-rm"] };
    let ran = Command::new("unshare")
        .args(map)
        .args(["sh", "-c", script, "sh"])
        .args([bash, real.as_path(), binary().as_path()])
        .args(arguments)
        .args(world.options())
        .output()
        .expect("unshare is there");
    if ran.status.code() == Some(99) || stderr(&ran).starts_with("unshare:") {
        assert!(std::env::var_os("PORTCULLIS_REQUIRE_KERNEL").is_none(), "{ran:?}");
        println!("skipped: {}", stderr(&ran));
        return None;
    }
    Some(ran)
}

/// The path of a program, with links resolved.
fn place_of(path: &str) -> PathBuf {
    let open = fs::File::open(path).expect("there");
    fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).expect("a place")
}

/// Substitutes for bash: a file that is not executable, another program, another shell, and scripts that fail
/// in their ways.
fn others(world: &World) -> Vec<PathBuf> {
    let script = |name: &str, text: &str, mode| {
        let path = world.root().join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        path
    };
    vec![
        script("not-executable", "x", 0o644),
        script("wrong-interpreter", "#!/no/such/program\n", 0o755),
        script("crashes", "#!/bin/sh\nkill -SEGV $$\n", 0o755),
        script("fails", "#!/bin/sh\nexit 3\n", 0o755),
        // Reads the command as bash would, and runs none.
        script("deaf", "#!/bin/sh\ncat <&201 >/dev/null 2>&1\nexit 0\n", 0o755),
        place_of("/bin/true"),
        place_of("/bin/sh"),
    ]
}

#[test]
fn a_bash_that_is_none_is_said_before_anything_runs() {
    let world = World::new();
    let call = ["call", "shell_exec", r#"{"command": "touch made"}"#, "--approve", "--json"];
    let Some(control) = with_bash(&world, &place_of("/bin/bash"), &call) else { return };
    assert_eq!(control.status.code(), Some(0), "{control:?}");
    assert!(world.shared("made").exists());
    fs::remove_file(world.shared("made")).expect("there");
    for bash in others(&world) {
        let ran = with_bash(&world, &bash, &call).expect("as before");
        let answer: Value = serde_json::from_str(&stdout(&ran)).expect("JSON");
        assert_eq!(answer["error"]["code"], "shell_unavailable", "{bash:?}: {answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains("bash") && message.contains("nothing"), "{bash:?}: {message}");
        assert_eq!(ran.status.code(), Some(5), "{bash:?}");
        assert!(!world.shared("made").exists(), "{bash:?}");
    }
}

#[test]
fn the_doctor_runs_a_command_before_it_says_that_commands_run() {
    let world = World::new();
    let doctor = ["doctor", "--json"];
    let Some(control) = with_bash(&world, &place_of("/bin/bash"), &doctor) else { return };
    let shell = |ran: &Output| -> Value {
        let findings: Value = serde_json::from_str(&stdout(ran)).expect("JSON");
        findings["shell"].clone()
    };
    assert_eq!((control.status.code(), &shell(&control)["ok"]), (Some(0), &json!(true)), "{control:?}");
    for bash in others(&world) {
        let ran = with_bash(&world, &bash, &doctor).expect("as before");
        assert_ne!(ran.status.code(), Some(0), "{bash:?}: {}", stdout(&ran));
        let shell = shell(&ran);
        assert_eq!(shell["ok"], false, "{bash:?}: {shell}");
        assert!(shell["reason"].as_str().is_some_and(|reason| reason.contains("bash")), "{bash:?}: {shell}");
    }
}
