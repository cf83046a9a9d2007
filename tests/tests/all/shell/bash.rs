//! A bash that is missing or is another program: a call and `doctor` report it before anything runs.
#![expect(clippy::disallowed_methods, reason = "the programs under test")]

use std::{
    fs,
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use portcullis_testing::{Fixture, binary, kernel_is_required};
use serde_json::{Value, json};

use crate::modules::{stderr, stdout};

/// Runs the program with this file mounted as `/bin/bash`. Returns `None` if mounting is not possible.
#[expect(clippy::print_stdout, reason = "a test that skips says why")]
fn run_with_bash(fixture: &Fixture, bash: &Path, arguments: &[&str]) -> Option<Output> {
    let real_bash = resolve_links("/bin/bash");
    let script = "mount --bind \"$1\" \"$2\" || exit 99; shift 2; exec \"$@\"";
    let map: &[&str] = if rustix::process::geteuid().is_root() { &["-m"] } else { &["-rm"] };
    let output = Command::new("unshare")
        .args(map)
        .args(["sh", "-c", script, "sh"])
        .args([bash, real_bash.as_path(), binary().as_path()])
        .args(arguments)
        .args(fixture.options())
        .output()
        .expect("unshare is there");
    if output.status.code() == Some(99) || stderr(&output).starts_with("unshare:") {
        assert!(!kernel_is_required(), "{output:?}");
        println!("skipped: {}", stderr(&output));
        return None;
    }
    Some(output)
}

/// Returns the path of a program, with symlinks resolved.
fn resolve_links(path: &str) -> PathBuf {
    let file = fs::File::open(path).expect("the file can be opened");
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("a place")
}

/// Creates substitutes for bash: a file that is not executable, another program, another shell, and scripts
/// that fail in several ways.
fn invalid_bashes(fixture: &Fixture) -> Vec<PathBuf> {
    let script = |name: &str, text: &str, mode| {
        let path = fixture.root().join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        path
    };
    vec![
        script("not-executable", "x", 0o644),
        script("wrong-interpreter", "#!/no/such/program\n", 0o755),
        script("crashes", "#!/bin/sh\nkill -SEGV $$\n", 0o755),
        script("fails", "#!/bin/sh\nexit 3\n", 0o755),
        // Reads the command as bash would, and runs nothing.
        script("deaf", "#!/bin/sh\ncat <&201 >/dev/null 2>&1\nexit 0\n", 0o755),
        resolve_links("/bin/true"),
        resolve_links("/bin/sh"),
    ]
}

#[test]
fn an_invalid_bash_is_reported_before_anything_runs() {
    let fixture = Fixture::new();
    let call = ["call", "shell_exec", r#"{"command": "touch made"}"#, "--approve", "--json"];
    let Some(control) = run_with_bash(&fixture, &resolve_links("/bin/bash"), &call) else { return };
    assert_eq!(control.status.code(), Some(0), "{control:?}");
    assert!(fixture.shared("made").exists());
    fs::remove_file(fixture.shared("made")).expect("the file can be removed");
    for bash in invalid_bashes(&fixture) {
        let output = run_with_bash(&fixture, &bash, &call).expect("as before");
        let answer: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(answer["error"]["code"], "shell_unavailable", "{bash:?}: {answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains("bash") && message.contains("nothing"), "{bash:?}: {message}");
        assert_eq!(output.status.code(), Some(5), "{bash:?}");
        assert!(!fixture.shared("made").exists(), "{bash:?}");
    }
}

#[test]
fn the_doctor_runs_a_command_before_it_says_that_commands_run() {
    let fixture = Fixture::new();
    let doctor = ["doctor", "--json"];
    let Some(control) = run_with_bash(&fixture, &resolve_links("/bin/bash"), &doctor) else { return };
    let shell = |output: &Output| -> Value {
        let findings: Value = serde_json::from_str(&stdout(output)).expect("JSON");
        findings["shell"].clone()
    };
    assert_eq!((control.status.code(), &shell(&control)["ok"]), (Some(0), &json!(true)), "{control:?}");
    for bash in invalid_bashes(&fixture) {
        let output = run_with_bash(&fixture, &bash, &doctor).expect("as before");
        assert_ne!(output.status.code(), Some(0), "{bash:?}: {}", stdout(&output));
        let shell = shell(&output);
        assert_eq!(shell["ok"], false, "{bash:?}: {shell}");
        assert!(shell["reason"].as_str().is_some_and(|reason| reason.contains("bash")), "{bash:?}: {shell}");
    }
}
