//! A command's result, the state that the session keeps, and the content of its row.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use portcullis_testing::{CallOutcome, approving_caller};
use portcullis_tools::audit::{Confinement, RowEvent, SubjectKind};
use portcullis_types::{ShellPosture, ToolErrorKind, ToolOutput};
use serde_json::json;

use super::{Shell, another_agent};

#[tokio::test]
async fn a_command_gives_its_output_and_its_exit_code() {
    let shell = Shell::new().await;
    assert_eq!(shell.text("echo out; echo err >&2").await, "out\nerr\n");
    assert_eq!(shell.text("printf half; exit 3").await, "half\n[exit code: 3]");
    assert_eq!(shell.text("no-such-program 2>/dev/null").await, "[exit code: 127]");
    assert_eq!(shell.text("kill -SEGV $$").await, "[killed by signal 11 (SIGSEGV)]");
    let answer = shell.run("echo out; echo error >&2; exit 1").await;
    let details = &answer.0.details;
    assert_eq!(details["exit_code"], 1);
    assert_eq!((&details["stdout_bytes"], &details["stderr_bytes"]), (&json!(4), &json!(6)));
    assert_eq!((&details["state"], &details["session"]["new"]), (&json!("carried"), &json!(false)));
}

#[tokio::test]
async fn a_session_keeps_its_state_and_is_its_agents_own() {
    let shell = Shell::new().await;
    shell.text("mkdir -p deep; cd deep; x=1; f() { echo f$x; }").await;
    assert_eq!(shell.text("basename $PWD; f").await, "deep\nf1\n");
    let other = shell.call(json!({"command": "echo [$x]", "session": "other"})).await;
    assert_eq!(other.text(), "[]\n");
    assert_eq!(other.0.details["session"], json!({"name": "other", "new": true}));
    let foreign = shell.call_as(&another_agent(), json!({"command": "echo [$x]"})).await;
    assert_eq!(foreign.text(), "[]\n");
}

#[tokio::test]
async fn stdin_workdir_and_non_utf_8_output_are_taken_as_they_are() {
    let shell = Shell::new().await;
    let answer = shell.call(json!({"command": "cat; pwd", "stdin": "in\n", "workdir": "/tmp"})).await;
    assert!(answer.text().starts_with("in\n/") && answer.text().ends_with("tmp\n"), "{}", answer.text());
    let answer = shell.run("printf 'a\\xffb\\0'").await;
    assert_eq!(answer.text(), "a\u{fffd}b\0");
    assert_eq!(answer.0.details["invalid_utf8"], true);
    for workdir in ["/vault", "/etc", "/shared/../etc"] {
        let answer = shell.call(json!({"command": "true", "workdir": workdir})).await;
        assert_eq!(answer.error().kind(), ToolErrorKind::Denied, "{workdir}");
    }
}

#[tokio::test]
async fn long_output_is_cut_and_keeps_the_exit_code() {
    let shell = Shell::new().await;
    let answer = shell.run("head -c 100000 /dev/zero | tr '\\0' x; exit 4").await;
    let text = answer.text();
    assert!(
        text.ends_with("x\n[output truncated — original size: 100,000 bytes]\n[exit code: 4]"),
        "{}",
        &text[text.len() - 100..]
    );
    let id = answer.0.details["output_id"].as_str().expect("the output is stored").to_owned();
    let rest = json!({"call_id": id, "offset": 99_990});
    let rest = CallOutcome::run(&shell.registry, "output_read", rest).await.text();
    assert!(rest.contains("xxxxxxxxxx\n[exit code: 4]"), "{rest}");
}

#[tokio::test]
async fn output_is_handed_on_while_the_command_runs() {
    let shell = Shell::new().await;
    let updates_text = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&updates_text);
    let mut caller = approving_caller();
    let gate = shell.fixture.shared("go");
    caller.on_update = Some(Arc::new(move |partial: ToolOutput| {
        sink.lock().expect("not poisoned").push_str(&partial.joined_text());
        // The command continues only after its first line was received.
        fs::write(&gate, "").expect("writable");
    }));
    let command = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second";
    let answer = shell.call_as(&caller, json!({ "command": command })).await;
    assert_eq!(answer.text(), "first\nsecond\n");
    assert_eq!(*updates_text.lock().expect("not poisoned"), "first\nsecond\n");
}

#[tokio::test]
async fn the_row_says_command_mounts_and_what_the_session_proved() {
    let shell = Shell::new().await;
    shell.text("echo hello").await;
    let rows = shell.fixture.rows();
    let [begin, end] = &rows[..] else { panic!("two rows, not {}", rows.len()) };
    assert_eq!((begin.event, end.event), (RowEvent::Begin, RowEvent::End));
    assert_eq!(end.confinement, Some(Confinement::Shell));
    assert_eq!(end.rule.as_deref(), Some("shell"));
    assert_eq!(end.approval.as_deref(), Some("approved"));
    assert_eq!((end.subjects[0].kind, &*end.subjects[0].value), (SubjectKind::Command, "echo hello"));
    let mounts: Vec<_> = end.mounts.iter().map(|mount| (&*mount.name, mount.access.as_str())).collect();
    assert_eq!(mounts, [("shared", "write"), ("tmp", "write")]);
    let posture = end.posture.as_deref().expect("a posture");
    let (word, layers) = posture.split_once('(').expect("a word and layers");
    assert!(word.parse::<ShellPosture>().expect("a posture") >= ShellPosture::Contained, "{posture}");
    for layer in ["limits=enforced", "privileges=enforced", "seccomp=enforced", "landlock="] {
        assert!(layers.contains(layer), "{posture}");
    }
}

#[tokio::test]
async fn a_command_sees_the_workspace_but_not_the_vault_or_the_state() {
    let shell = Shell::new().await;
    shell.fixture.put("note", "seen");
    fs::write(shell.fixture.workspace().join("vault/key"), "secret").expect("writable");
    assert_eq!(shell.text("cat note").await, "seen");
    for path in [shell.fixture.workspace().join("vault/key"), shell.fixture.state().join("audit.jsonl")] {
        let text = shell.text(&format!("cat {} 2>&1", path.display())).await;
        assert!(text.ends_with("[exit code: 1]") && !text.contains("secret"), "{text}");
    }
    assert_eq!(shell.text("cat /vault/key 2>/dev/null").await, "[exit code: 1]");
}

#[tokio::test]
async fn the_row_has_protected_paths_and_whether_all_were_looked_for() {
    let shell = Shell::new().await;
    let protected_subjects = |shell: &Shell| -> Vec<(String, String)> {
        let subjects = shell.last_row().subjects;
        let protected_subjects = subjects.iter().filter(|subject| !subject.source.is_argument());
        protected_subjects.map(|subject| (subject.source.to_string(), subject.value.to_string())).collect()
    };
    let pair = |argument: &str, value: &str| (argument.to_owned(), value.to_owned());
    shell.text("echo x > plain").await;
    assert_eq!(protected_subjects(&shell), []);
    shell.text("echo x > .bashrc").await;
    assert_eq!(protected_subjects(&shell), [pair("protected_path_made", "/shared/.bashrc")]);
    // The folders are deeper than the search for protected paths descends.
    let answer =
        shell.run("for i in $(seq 200); do mkdir d && cd -P d || exit; done; cd; echo y > .bashrc").await;
    assert_eq!(answer.0.details["protected_complete"], false, "{}", answer.text());
    assert_eq!(
        protected_subjects(&shell),
        [pair("protected_paths_unseen", "/"), pair("protected_path_made", "/shared/.bashrc")]
    );
}
