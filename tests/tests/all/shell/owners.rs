//! A session belongs to its run: no other caller reaches the session, even with the same names, and the
//! session ends with the run.

use std::sync::Arc;

use portcullis::OwnSidecar;
use portcullis_testing::{Fixture, approving_caller, binary};
use portcullis_tools::{Caller, shell::ShellSource};
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::{Shell, backends::wait_until};

fn caller_of_run(id: &str) -> Caller {
    let mut caller = approving_caller();
    id.clone_into(&mut caller.run_id);
    caller
}

/// Returns a client that chose this name.
fn client(name: &str, run: &str) -> Caller {
    let mut caller = Caller::named_by_itself(name, run);
    caller.approver = approving_caller().approver;
    caller
}

/// A command that holds a lock as long as its session lives.
const HOLD_LOCK_COMMAND: &str = "exec 9> held; flock 9; sleep 1000 >&- 2>&- &";

/// Returns whether the lock is free.
fn is_free(fixture: &Fixture) -> bool {
    let lock = std::fs::File::open(fixture.shared("held")).expect("the file can be opened");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[tokio::test]
async fn runs_of_one_agent_have_sessions_of_their_own() {
    let shell = Shell::new().await;
    let plant = json!({"command": "export SECRET=s3cret; git() { echo planted; }", "session": "work"});
    let _ran = shell.call_as(&caller_of_run("one"), plant).await.text();
    let look = json!({"command": "echo [$SECRET]; type -t git", "session": "work"});
    let other = shell.call_as(&caller_of_run("two"), look.clone()).await;
    assert!(other.text().starts_with("[]\n") && !other.text().contains("function"), "{}", other.text());
    assert_eq!(other.0.details["session"]["new"], true);
    assert_eq!(shell.call_as(&caller_of_run("one"), look).await.text(), "[s3cret]\nfunction\n");
}

#[tokio::test]
async fn a_client_chosen_name_reaches_only_the_clients_own_session() {
    let shell = Shell::new().await;
    let _ran = shell.call_as(&client("editor", "a"), json!({"command": "x=1"})).await.text();
    let look = json!({"command": "echo [$x]"});
    for stranger in [client("editor", "b"), client("a", "editor"), caller_of_run("a"), client("", "b")] {
        assert_eq!(shell.call_as(&stranger, look.clone()).await.text(), "[]\n", "{stranger:?}");
    }
    // A client may change its name from one request to the next.
    assert_eq!(shell.call_as(&client("renamed", "a"), look).await.text(), "[1]\n");
}

#[tokio::test]
async fn the_end_of_a_run_ends_its_sessions_and_no_others() {
    let shell = Shell::new().await;
    let _ran = shell.call_as(&caller_of_run("over"), json!({"command": HOLD_LOCK_COMMAND})).await.text();
    let _ran =
        shell.call_as(&caller_of_run("over"), json!({"command": "y=1", "session": "second"})).await.text();
    let _ran = shell.call_as(&caller_of_run("stays"), json!({"command": "x=1"})).await.text();
    assert!(!is_free(&shell.fixture), "the control");
    shell.registry.end_run(&caller_of_run("other"));
    assert!(!is_free(&shell.fixture), "of another run");
    shell.registry.end_run(&caller_of_run("over"));
    wait_until(|| is_free(&shell.fixture)).await;
    assert_eq!(shell.call_as(&caller_of_run("stays"), json!({"command": "echo [$x]"})).await.text(), "[1]\n");
    let in_new_run =
        shell.call_as(&caller_of_run("over"), json!({"command": "echo [$y]", "session": "second"})).await;
    assert_eq!(in_new_run.text(), "[]\n");
}

#[tokio::test]
async fn one_run_leaves_sessions_to_the_others() {
    let shell = Shell::new().await;
    let in_session = |number: usize| json!({"command": "echo on", "session": format!("s{number}")});
    for number in 0..8 {
        assert_eq!(shell.call_as(&caller_of_run("many"), in_session(number)).await.text(), "on\n");
    }
    let refused = shell.call_as(&caller_of_run("many"), in_session(8)).await;
    let error = refused.0.outcome.error().expect("refused");
    assert_eq!(error.kind(), ToolErrorKind::ResourceLimit, "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("s0, s1")), "{error:?}");
    assert_eq!(shell.call_as(&caller_of_run("many"), in_session(3)).await.text(), "on\n");
    for other in ["b", "c"] {
        for number in 0..8 {
            assert_eq!(
                shell.call_as(&caller_of_run(other), in_session(number)).await.text(),
                "on\n",
                "{other} {number}"
            );
        }
    }
    shell.registry.end_run(&caller_of_run("many"));
    assert_eq!(shell.call_as(&caller_of_run("many"), in_session(8)).await.text(), "on\n");
}

#[tokio::test]
async fn a_registry_that_goes_takes_its_sessions_along() {
    let fixture = Fixture::new();
    let source = ShellSource::Own(Arc::new(OwnSidecar::new(binary())));
    let registry = fixture.builder().await.expect("bootstraps").shell(source).build().expect("builds");
    let shell = Shell { fixture, registry };
    let _ran = shell.call(json!({"command": HOLD_LOCK_COMMAND})).await.text();
    let Shell { fixture, registry } = shell;
    tokio::task::spawn_blocking(move || drop(registry)).await.expect("dropped");
    wait_until(|| is_free(&fixture)).await;
}
