//! `portcullis tasks`, through the real binary.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use portcullis_testing::Fixture;
use rustix::process::{Pid, Signal, kill_process};

use crate::modules::{portcullis, stderr, stdout};

/// Formats a call as a code block.
fn call(tool: &str, parameters: &str) -> String {
    format!("```json\n{{\"tool_call\": {{\"name\": \"{tool}\", \"parameters\": {parameters}}}}}\n```\n")
}

/// Creates the folder of tasks, outside all mounts.
fn tasks(fixture: &Fixture) -> PathBuf {
    let folder = fixture.root().join("tasks");
    fs::create_dir_all(folder.join("01_Inbox")).expect("the folder can be made");
    folder
}

fn run(fixture: &Fixture, more: &[&str]) -> std::process::Output {
    let folder = tasks(fixture).display().to_string();
    portcullis(fixture, &[&["tasks", "run", &folder], more].concat())
}

#[test]
fn calls_run_once_and_leave_rows_of_the_agent_tasks() {
    let fixture = Fixture::new();
    let folder = tasks(&fixture);
    let write = call("file_write", r#"{"path": "a.txt", "content": "x"}"#);
    let body = format!("{write}{}", call("search_web", r#"{"query": "x"}"#));
    fs::write(folder.join("01_Inbox/a.md"), &body).expect("written");
    let output = run(&fixture, &[]);
    assert_eq!(output.status.code(), Some(1), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("line 1: file_write: success"), "{}", stdout(&output));
    assert_eq!(fs::read_to_string(fixture.shared("a.txt")).expect("written"), "x");
    let text = fs::read_to_string(folder.join("02_Needs_Action/a.md")).expect("moved");
    assert_eq!(text.matches("````tool-result").count(), 2, "{text}");
    assert!(text.contains("the tool exists if the policy has \\u0060[search]\\u0060"), "{text}");
    fs::remove_file(fixture.shared("a.txt")).expect("removed");
    fs::rename(folder.join("02_Needs_Action/a.md"), folder.join("01_Inbox/a.md")).expect("moved");
    run(&fixture, &[]);
    assert!(!fixture.shared("a.txt").exists(), "the call does not run again");
    let rows = fixture.rows();
    let of_tasks: Vec<_> = rows.iter().filter(|row| row.agent.as_deref() == Some("tasks")).collect();
    let calls: BTreeSet<&str> = of_tasks.iter().map(|row| &*row.call_id).collect();
    assert_eq!(calls.len(), 2, "each call once");
    assert!(of_tasks.iter().all(|row| row.run_id.as_deref() == Some("task:a.md")));
}

#[test]
fn a_task_in_a_folder_that_tools_can_write_approves_nothing() {
    let fixture = Fixture::new();
    let folder = fixture.shared("tasks");
    fs::create_dir_all(folder.join("04_Approved")).expect("the folder can be made");
    fs::write(folder.join("04_Approved/a.md"), call("web_fetch", r#"{"url": "https://a.example/"}"#))
        .expect("written");
    let path = folder.display().to_string();
    for _time in 0..2 {
        let output = portcullis(&fixture, &["tasks", "run", &path]);
        assert!(stderr(&output).contains("approves nothing, because tools can write in the mount `shared`"));
        assert!(stdout(&output).contains("web_fetch: needs approval"), "{}", stdout(&output));
        fs::rename(folder.join("03_Pending_Approval/a.md"), folder.join("04_Approved/a.md")).expect("moved");
    }
}

#[test]
fn states_inside_the_folder_of_tasks_are_refused() {
    let fixture = Fixture::new();
    let file = tasks(&fixture).join("states.toml");
    fs::write(&file, "").expect("written");
    let output = run(&fixture, &["--states", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("it is in the folder of tasks"), "{}", stderr(&output));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test kills the program in the middle of a call")]
fn a_killed_process_leaves_no_call_that_runs_twice() {
    let fixture = Fixture::new();
    let folder = tasks(&fixture);
    let command = r#"{"command": "echo begun >> /shared/log; sleep 600"}"#;
    let body = format!(
        "{}{}",
        call("shell_exec", command),
        call("file_write", r#"{"path": "b.txt", "content": "x"}"#)
    );
    fs::write(folder.join("01_Inbox/a.md"), body).expect("written");
    let mut child = Command::new(portcullis_testing::binary())
        .args(fixture.options())
        .args(["tasks", "run", &folder.display().to_string(), "--approve"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    // The shell creates the file before it writes the line.
    portcullis_testing::wait_until("the command begins", || {
        fs::read_to_string(fixture.shared("log")).is_ok_and(|log| log == "begun\n")
    });
    let text = fs::read_to_string(folder.join("01_Inbox/a.md")).expect("the file is readable");
    assert!(text.contains("\"status\":\"pending\""), "the row is written before the effect: {text}");
    kill_process(Pid::from_child(&child), Signal::KILL).expect("killed");
    child.wait().expect("ended");
    let output = run(&fixture, &["--approve"]);
    assert!(stdout(&output).contains("failed (interrupted)"), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(fs::read_to_string(fixture.shared("log")).expect("written"), "begun\n");
    assert!(fixture.shared("b.txt").exists(), "the call that had not begun runs");
    assert!(folder.join("02_Needs_Action/a.md").exists());
}

/// Runs the commands of docs/tasks.md unchanged.
#[test]
#[expect(clippy::disallowed_methods, reason = "the shell of the document's commands")]
fn the_commands_of_the_document_do_what_it_says() {
    let document = include_str!("../../../docs/tasks.md");
    let (_, rest) = document.split_once("```sh\n").expect("a block");
    // The block contains fences, so find its end by its last command.
    let last = "cat tasks/07_Done/greeting.md\n";
    let end = rest.find(last).expect("the last command") + last.len();
    let fixture = Fixture::new();
    let program = fixture.root().join("portcullis");
    let options: Vec<String> =
        fixture.options().iter().map(|option| format!("'{}'", option.to_string_lossy())).collect();
    let binary = portcullis_testing::binary();
    let wrapper = format!("#!/bin/sh\nexec '{}' {} \"$@\"\n", binary.display(), options.join(" "));
    fs::write(&program, wrapper).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    let script = format!("set -eu -o pipefail\nportcullis() {{ \"$program\" \"$@\"; }}\n{}", &rest[..end]);
    let output = Command::new("bash")
        .arg("-c")
        .arg(script)
        .current_dir(fixture.root())
        .env("program", &program)
        .stdin(Stdio::null())
        .output()
        .expect("starts");
    let shown = stdout(&output);
    assert!(output.status.success(), "{shown}{}", stderr(&output));
    assert!(shown.contains("shell_exec: needs approval") && shown.contains("shell_exec: success"), "{shown}");
    assert_eq!(shown.matches("````tool-result").count(), 2, "{shown}");
    assert_eq!(fs::read_to_string(fixture.shared("log")).expect("written"), "Hello.\n");
}

/// The states in the document exist, and its table of the defaults is correct.
#[test]
fn the_states_of_the_document_are_states() {
    let document = include_str!("../../../docs/tasks.md");
    let (_, rest) = document.split_once("```toml\n").expect("a block");
    let (text, _) = rest.split_once("```\n").expect("an end");
    let fixture = Fixture::new();
    let file = fixture.root().join("states.toml");
    fs::write(&file, text).expect("written");
    let output = run(&fixture, &["--states", &file.display().to_string()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(tasks(&fixture).join("waiting").is_dir());
    let defaults = Fixture::new();
    assert!(run(&defaults, &[]).status.success());
    for folder in fs::read_dir(tasks(&defaults)).expect("listed") {
        let name = folder.expect("an entry").file_name();
        assert!(document.contains(&format!("| `{}` |", name.to_string_lossy())), "{name:?}");
    }
}

#[test]
fn a_new_folder_beside_the_workspace_is_in_no_mount() {
    let fixture = Fixture::new();
    let beside = portcullis(&fixture, &["tasks", "run", &fixture.root().display().to_string()]);
    assert!(beside.status.success(), "{}", stderr(&beside));
    assert!(!stderr(&beside).contains("approves nothing"), "{}", stderr(&beside));
    let inside = portcullis(&fixture, &["tasks", "run", &fixture.shared("").display().to_string()]);
    assert!(stderr(&inside).contains("approves nothing"), "{}", stderr(&inside));
}
