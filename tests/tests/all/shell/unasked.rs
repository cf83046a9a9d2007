//! Commands that run without a question by the operator's rules, through the pipeline and a real sidecar.

use std::process::{Command, Output, Stdio};

use portcullis_testing::Fixture;
use portcullis_tools::Caller;
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::Shell;
use crate::person::Person;

async fn shell() -> Shell {
    let rules = "[\"ls *\", \"cat *\", \"git status\", \"cd *\"]";
    Shell::with_fixture(Fixture::new().with_policy_key("shell.unasked", rules)).await
}

/// Returns a caller without an approver, so a question is a refusal.
fn unattended() -> Caller {
    Caller::new("tester", "run")
}

#[tokio::test]
async fn a_covered_command_runs_and_its_row_names_the_rules() {
    let shell = shell().await;
    shell.fixture.put("note", "seen\n");
    let answer = shell.call_as(&unattended(), json!({"command": "ls && cat note 2>/dev/null"})).await;
    assert_eq!(answer.text(), "note\nseen\n");
    let row = shell.last_row();
    assert_eq!(row.rule.as_deref(), Some("shell.unasked[\"ls *\"], shell.unasked[\"cat *\"]"));
    assert_eq!(row.approval.as_deref(), Some("not_required"));
    for command in ["ls; touch made", "ls > made", "cat $HOME/note", "LD_PRELOAD=x ls", "ls $(touch made)"] {
        let answer = shell.call_as(&unattended(), json!({"command": command})).await;
        answer.assert_refused(ToolErrorKind::Denied, "approval_unavailable");
        assert!(!shell.fixture.shared("made").exists(), "{command}");
    }
}

#[tokio::test]
async fn an_approved_command_changes_nothing_about_unasked_ones() {
    let shell = shell().await;
    shell.fixture.put("note", "seen\n");
    // An approver allows this one command, which redefines programs. The rules must still mean the system's `ls` and
    // `cat`.
    let state = "ls() { echo evil > made; }; alias cat='touch made'; shopt -s expand_aliases; mkdir -p bin; \
                 printf '#!/bin/sh\\ntouch made' > bin/git; chmod +x bin/git; export PATH=$PWD/bin:$PATH \
                 GIT_EXTERNAL_DIFF=$PWD/x BASH_ENV=$PWD/x; hash -p bin/git cat; cd bin";
    shell.text(state).await;
    for command in ["ls", "cat note", "git status"] {
        let _answer = shell.call_as(&unattended(), json!({"command": command})).await;
        assert!(!shell.fixture.shared("made").exists(), "{command}");
        assert!(!shell.fixture.shared("bin/made").exists(), "{command}");
    }
    assert_eq!(shell.call_as(&unattended(), json!({"command": "cat note"})).await.text(), "seen\n");
    // The approved commands have kept their own session.
    assert_eq!(shell.text("{ basename $PWD; type -t ls; } 2>/dev/null").await, "bin\nfunction\n");
}

#[tokio::test]
async fn a_run_that_a_flow_rule_asks_about_is_asked_about() {
    let shell = shell().await;
    std::fs::write(shell.fixture.workspace().join("vault/key"), "k").expect("written");
    let call = portcullis_tools::new_call("file_read", json!({"path": "/vault/key"}).to_string());
    let read = shell.registry.execute_with_policy(call, &unattended()).await;
    assert!(read.outcome.is_output(), "{read:?}");
    let answer = shell.call_as(&unattended(), json!({"command": "ls"})).await;
    answer.assert_refused(ToolErrorKind::Denied, "approval_unavailable");
}

/// Runs the program without a terminal, under the unchanged policy file.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn run_unattended(fixture: &Fixture, words: &[&str]) -> Output {
    let mut command = Command::new(portcullis_testing::binary());
    command.arg("--workspace").arg(fixture.workspace()).arg("--state").arg(fixture.state());
    command.arg("--policy").arg(fixture.root().join("policy.toml"));
    command.args(words).stdin(Stdio::null()).output().expect("starts")
}

#[test]
fn an_approver_writes_the_rule_and_is_not_asked_again() {
    let fixture = Fixture::new();
    let call = ["call", "shell_exec", r#"{"command":"ls -a && pwd"}"#];
    let mut person = Person::start(&fixture, &call, "");
    let question = person.wait_for_text("any other text is a no");
    let written = "unasked = [\"ls -a\", \"pwd\"]";
    assert!(question.contains(&format!("w = yes, and write {written} to ")), "{question}");
    let file = fixture.root().join("policy.toml");
    person.type_line("w");
    let (rest, code) = person.wait_for_end();
    assert_eq!(code, Some(0), "{rest}");
    let policy = std::fs::read_to_string(&file).expect("readable");
    assert!(policy.contains(written), "{rest}\n{policy}");
    // Without a terminal there is no approver, but the written rule makes one unnecessary.
    let again = run_unattended(&fixture, &call);
    assert!(again.status.success(), "{again:?}");
    let row = fixture.rows().pop().expect("a row");
    assert_eq!(row.rule.as_deref(), Some("shell.unasked[\"ls -a\"], shell.unasked[\"pwd\"]"));
    let other = run_unattended(&fixture, &["call", "shell_exec", r#"{"command":"ls"}"#]);
    assert_eq!(other.status.code(), Some(3), "{other:?}");
    // No rule is offered for a command that no rule can cover.
    let mut person = Person::start(&fixture, &["call", "shell_exec", r#"{"command":"ls $HOME"}"#], "");
    let question = person.wait_for_text("any other text is a no");
    assert!(!question.contains("w = yes"), "{question}");
    person.type_line("w");
    assert_eq!(person.wait_for_end().1, Some(3));
}
