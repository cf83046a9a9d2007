//! Output that background jobs write after their command has ended: it comes with the next result of their session.

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use super::{Shell, another_agent};

const HEAD: &str = "[background jobs wrote since the last command:]\n";

/// Runs commands without output until a result has output of a background job.
async fn next_job_output(shell: &Shell) -> (String, Value) {
    for _ in 0..10_000 {
        let answer = shell.run("sleep 0.01").await;
        if answer.0.details["background_bytes"] != 0 {
            return (answer.text(), answer.0.details.clone());
        }
    }
    panic!("nothing of the job's came");
}

/// Starts a job that writes this text once the file `go` exists, and then creates the file `written`.
async fn begin_job(shell: &Shell, writes: &str) {
    let job = format!("(until [[ -e go ]]; do sleep 0.01; done; {writes}; : > written) & echo begun");
    let text = shell.text(&job).await;
    assert!(text.starts_with("begun\n[background jobs are still running"), "{text}");
}

#[tokio::test]
async fn job_output_comes_once_with_the_next_command() {
    let shell = Shell::new().await;
    begin_job(&shell, "echo from the job; echo and its error >&2").await;
    assert_eq!(shell.text("echo nothing yet").await, "nothing yet\n");
    shell.fixture.put("go", "");
    let text = shell.text("until [[ -e written ]]; do sleep 0.01; done; echo mine").await;
    let (mut output_text, mut rest) = (text.clone(), String::new());
    if !text.contains(HEAD) {
        (rest, _) = next_job_output(&shell).await;
        output_text += &rest;
    }
    assert!(output_text.starts_with("mine\n") && output_text.contains(HEAD), "{text:?} {rest:?}");
    assert!(
        output_text.contains("from the job\n") && output_text.contains("and its error\n"),
        "{text:?} {rest:?}"
    );
    assert_eq!(shell.text("echo after").await, "after\n");
}

#[tokio::test]
async fn job_output_belongs_to_its_session() {
    let shell = Shell::new().await;
    begin_job(&shell, "echo mine").await;
    shell.fixture.put("go", "");
    let wait = "until [[ -e written ]]; do sleep 0.01; done; sleep 0.1; echo over";
    let other = shell.call(json!({"command": wait, "session": "other"})).await;
    assert_eq!(other.text(), "over\n");
    assert_eq!(shell.call_as(&another_agent(), json!({"command": wait})).await.text(), "over\n");
    assert!(next_job_output(&shell).await.0.ends_with("mine\n"));
}

#[tokio::test]
async fn dropped_job_output_is_counted_and_the_rest_paged() {
    let shell = Shell::new().await;
    begin_job(&shell, "head -c 200000 /dev/zero | tr '\\0' x; echo the end").await;
    shell.fixture.put("go", "");
    let mut last_details = Value::Null;
    let mut bytes = 0;
    let (mut dropped, mut last_text) = (0, String::new());
    while !last_text.ends_with("the end\n") {
        let answer = shell.run("sleep 0.05").await;
        let details = &answer.0.details;
        bytes += details["background_bytes"].as_u64().expect("a number");
        dropped += details["background_dropped"].as_u64().expect("a number");
        assert!(answer.text().len() < 20_000, "the usual limit holds");
        if details["background_bytes"] != 0 {
            last_text = match details["output_id"].as_str() {
                Some(id) => {
                    let end = json!({"call_id": id, "offset": answer.0.original_bytes - 100});
                    CallOutcome::run(&shell.registry, "output_read", end).await.text()
                }
                None => answer.text(),
            };
            last_details = details.clone();
        }
    }
    assert_eq!(bytes + dropped, 200_008, "{last_details}");
}

#[tokio::test]
async fn a_command_that_is_killed_does_not_lose_it() {
    let shell = Shell::new().await;
    begin_job(&shell, "echo kept").await;
    shell.fixture.put("go", "");
    let wait = "until [[ -e written ]]; do sleep 0.01; done; sleep 100";
    let killed = shell.call(json!({"command": wait, "timeout": 3})).await;
    assert_eq!(killed.error().kind(), ToolErrorKind::Timeout);
    assert!(next_job_output(&shell).await.0.ends_with("kept\n"));
}

#[tokio::test]
async fn a_command_refused_for_earlier_jobs_keeps_the_session() {
    let shell = Shell::new().await;
    assert_eq!(shell.text("kept=here").await, "");
    for _ in 0..16 {
        let text = shell.text("(until [[ -e go ]]; do sleep 0.05; done) &").await;
        assert!(text.starts_with("[background jobs are still running"), "{text}");
    }
    let refused = shell.run("echo no").await;
    assert_eq!(refused.error().kind(), ToolErrorKind::ResourceLimit, "{:?}", refused.error());
    shell.fixture.put("go", "");
    let answer = loop {
        let answer = shell.run("echo $kept").await;
        if answer.0.outcome.is_output() {
            break answer;
        }
    };
    assert_eq!(
        (answer.text().as_str(), &answer.0.details["session"]["new"]),
        ("here\n", &Value::Bool(false))
    );
}

#[tokio::test]
async fn jobs_that_are_killed_for_their_memory_do_not_die_silently() {
    let fixture = Fixture::new().with_policy_key("shell.memory", "\"64MiB\"");
    let shell = Shell::with_fixture(fixture).await;
    begin_job(&shell, "for i in 1 2 3; do perl -e '$x = \"x\" x (20 << 20); sleep 60' & done; wait").await;
    shell.fixture.put("go", "");
    let (text, details) = next_job_output(&shell).await;
    assert!(text.contains("[background jobs were killed: they had too much memory]"), "{text}");
    assert_eq!(details["background_killed"], json!(["memory"]));
}

#[tokio::test]
async fn a_session_at_its_limit_of_jobs_continues() {
    let shell = Shell::new().await;
    shell.text("x=kept").await;
    let mut refused = None;
    while refused.is_none() {
        let answer = shell.run("(until [[ -e go ]]; do sleep 0.1; done) & true").await;
        refused = answer.0.outcome.error().map(|error| error.kind());
    }
    assert_eq!(refused, Some(ToolErrorKind::ResourceLimit));
    shell.fixture.put("go", "");
    let answer = loop {
        let answer = shell.run("echo $x").await;
        match &answer.0.outcome.clone().into_result() {
            Err(error) => assert_eq!(error.kind(), ToolErrorKind::ResourceLimit, "{error}"),
            Ok(_) => break answer,
        }
    };
    assert!(answer.text().starts_with("kept\n"), "{}", answer.text());
    assert_eq!(answer.0.details["session"]["new"], false);
}
