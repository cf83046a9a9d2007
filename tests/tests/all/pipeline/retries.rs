//! Retries: which failures are retried, and that no effect happens twice.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use portcullis::OwnSidecar;
use portcullis_testing::{Fixture, approving_caller, binary};
use portcullis_tools::{
    Caller, ToolRegistry,
    approval::ApprovalAnswer,
    audit::{Outcome, RowEvent},
    shell::{SHELL_EXEC, ShellSource},
};
use portcullis_types::{SafetyTier, ToolError, ToolErrorKind, ToolMeta, ToolOutput};
use serde_json::{Value, json};

use super::failing;
use crate::support::{
    ScriptedApprover, Spy, caller, caller_asking, fixture_enabling, native_registry, raw_call,
};

/// Creates a spy that is unavailable for the first calls.
fn spy_unavailable(times: usize) -> Spy {
    let tries = Arc::new(AtomicUsize::new(0));
    Spy::new("spy", move |_, _| {
        let is_there = tries.fetch_add(1, Ordering::SeqCst) >= times;
        async move { if is_there { Ok(ToolOutput::text("done")) } else { Err(ToolError::unavailable("not now")) } }
    })
}

/// Makes a call. Returns the number of attempts, the attempts in the call's details, and its result.
async fn count_tries(spy: Spy) -> (usize, Value, String) {
    let fixture = fixture_enabling(&["spy"]);
    let calls = spy.calls();
    let approver = ScriptedApprover::new(|_, _| ApprovalAnswer::Approve);
    let registry = native_registry(&fixture, [spy]);
    let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller_asking(approver.clone())).await;
    let end_count = fixture.rows().into_iter().filter(|row| row.event == RowEvent::End).count();
    assert_eq!(end_count, 1, "a call has one end, however often it is tried");
    assert!(approver.requests().len() <= 1, "and one question");
    (calls.load(Ordering::SeqCst), result.details["tries"].clone(), result.model_text())
}

#[tokio::test]
async fn a_read_only_tool_is_retried_when_unavailable() {
    assert_eq!(count_tries(spy_unavailable(0)).await, (1, Value::Null, "done".into()));
    assert_eq!(count_tries(spy_unavailable(1)).await, (2, json!(2), "done".into()));
    assert_eq!(count_tries(spy_unavailable(2)).await, (3, json!(3), "done".into()));
    assert_eq!(count_tries(spy_unavailable(9)).await, (3, json!(3), "Tool execution failed: not now".into()));
}

#[tokio::test]
async fn tool_with_effects_is_retried_only_if_idempotent() {
    for tier in [SafetyTier::SideEffecting, SafetyTier::Privileged] {
        let failed = "Tool execution failed: not now".to_owned();
        assert_eq!(count_tries(spy_unavailable(1).tier(tier)).await, (1, Value::Null, failed));
        let meta = ToolMeta { idempotent: true, ..ToolMeta::default() };
        assert_eq!(count_tries(spy_unavailable(1).tier(tier).meta(meta)).await, (2, json!(2), "done".into()));
    }
}

#[tokio::test]
async fn no_other_failure_is_tried_again() {
    for error in [
        ToolError::failed("x"),
        ToolError::not_found("x"),
        ToolError::internal("x"),
        ToolError::timeout("x"),
        ToolError::denied("x"),
        ToolError::resource_limit("x"),
        ToolError::cancelled("x"),
        ToolError::invalid_arguments("x"),
    ] {
        let kind = error.kind();
        assert_eq!(count_tries(failing("spy", error)).await.0, 1, "{kind}");
    }
}

#[tokio::test]
async fn tool_that_made_nested_calls_is_not_retried() {
    let fixture = fixture_enabling(&["outer", "effect"]);
    let cell: Arc<OnceLock<Arc<ToolRegistry>>> = Arc::default();
    let registries = Arc::clone(&cell);
    let effect = Spy::new("effect", |_, _| async { Err(ToolError::unavailable("half of it is done")) });
    let effects = effect.calls();
    let meta = ToolMeta { idempotent: true, ..ToolMeta::default() };
    let outer = Spy::new("outer", move |ctx, _| {
        let registry = Arc::clone(registries.get().expect("set"));
        async move {
            registry.execute_with_policy(raw_call("effect", "{}"), &Caller::nested(&ctx)).await.into_result()
        }
    });
    let registry =
        Arc::new(native_registry(&fixture, [effect.tier(SafetyTier::SideEffecting), outer.meta(meta)]));
    assert!(cell.set(Arc::clone(&registry)).is_ok());
    let result = registry.execute_with_policy(raw_call("outer", "{}"), &caller()).await;
    assert_eq!(result.model_text(), "Tool execution failed: half of it is done");
    assert_eq!((effects.load(Ordering::SeqCst), result.details.get("tries")), (1, None));
    drop(cell);
}

#[tokio::test]
async fn no_try_waits_for_a_moment_after_the_deadline() {
    let fixture = fixture_enabling(&["spy"]);
    let registry = native_registry(&fixture, [spy_unavailable(1000)]);
    // On a busy machine even the first attempt may come after the deadline. An attempt after a pause always
    // would.
    for _ in 0..50 {
        let mut hurried = caller();
        hurried.turn_deadline = Some(Instant::now() + Duration::from_millis(95));
        let result = registry.execute_with_policy(raw_call("spy", "{}"), &hurried).await;
        if result.outcome.error().expect("not there").kind() == ToolErrorKind::Unavailable {
            assert_eq!(result.details.get("tries"), None);
            return;
        }
    }
    panic!("each of them waited until its time was up");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_between_two_tries_ends_immediately() {
    let fixture = fixture_enabling(&["spy"]);
    let spy = spy_unavailable(9);
    let calls = spy.calls();
    let registry = native_registry(&fixture, [spy]);
    let caller = caller();
    let begun = tokio::time::Instant::now();
    let call = registry.execute_with_policy(raw_call("spy", "{}"), &caller);
    let cancelling = async {
        // The paused clock does not advance during this loop, so the pause after the first attempt does not
        // end.
        let deadline = Instant::now() + Duration::from_millis(300);
        while calls.load(Ordering::SeqCst) == 0 || Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        caller.cancel.cancel();
    };
    let (result, ()) = tokio::join!(call, cancelling);
    assert_eq!(result.into_result().expect_err("given up").kind(), ToolErrorKind::Cancelled);
    assert_eq!((calls.load(Ordering::SeqCst), begun.elapsed()), (1, Duration::ZERO));
    assert_eq!(fixture.rows()[0].outcome, Some(Outcome::Error(ToolErrorKind::Cancelled)));
}

#[tokio::test]
async fn all_tries_of_a_call_share_a_key_that_no_other_call_has() {
    let fixture = fixture_enabling(&["spy"]);
    let keys = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&keys);
    let spy = Spy::new("spy", move |ctx, _| {
        let mut keys = sink.lock().expect("not poisoned");
        keys.push(ctx.idempotency_key.clone());
        let is_second = keys.len().is_multiple_of(2);
        async move { if is_second { Ok(ToolOutput::text("")) } else { Err(ToolError::unavailable("not now")) } }
    });
    let registry = native_registry(&fixture, [spy]);
    for (agent, run, id) in [
        ("a", "run", "c1"),
        ("a", "run", "c2"),
        ("a", "other", "c1"),
        ("a", "runc", "1"),
        ("a", "run", "c\r\nx: y"),
        ("b", "run", "c1"),
    ] {
        let mut caller = caller();
        caller.agent_id = agent.to_owned();
        caller.run_id = run.to_owned();
        let mut call = raw_call("spy", "{}");
        call.id = id.to_owned();
        registry.execute_with_policy(call, &caller).await.into_result().expect("the second time");
    }
    let keys = keys.lock().expect("not poisoned").clone();
    assert!(keys.chunks(2).all(|tries| tries[0] == tries[1]), "{keys:?}");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 6, "{keys:?}");
    for key in &keys {
        assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    }
}

/// Creates a registry whose sidecar is the program at this path.
async fn registry_with_sidecar(fixture: &Fixture, program: &Path) -> ToolRegistry {
    let shell = ShellSource::Own(Arc::new(OwnSidecar::new(program)));
    fixture.builder().await.expect("bootstraps").shell(shell).build().expect("builds")
}

#[tokio::test]
async fn a_command_without_a_sidecar_is_retried_and_runs_once() {
    let fixture = Fixture::new();
    let command = json!({"command": "echo run >> /shared/runs"}).to_string();
    let registry_without_sidecar = registry_with_sidecar(&fixture, Path::new("/bin/false")).await;
    let result = registry_without_sidecar
        .execute_with_policy(raw_call(SHELL_EXEC, &command), &approving_caller())
        .await;
    assert_eq!(result.details["tries"], 3, "{result:?}");
    assert_eq!(result.into_result().expect_err("no sidecar").code(), "shell_unavailable");

    // This program starts in place of the sidecar but is not a sidecar.
    let program = fixture.root().join("sidecar");
    let program_path = program.display();
    let script = format!(
        "#!/bin/sh\n/bin/ln -s '{}' '{program_path}.new' && /bin/mv '{program_path}.new' '{program_path}'\nexit 1\n",
        binary().display()
    );
    fs::write(&program, script).expect("writable");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("set");
    let registry_with_late_sidecar = registry_with_sidecar(&fixture, &program).await;
    let result = registry_with_late_sidecar
        .execute_with_policy(raw_call(SHELL_EXEC, &command), &approving_caller())
        .await;
    assert_eq!(result.details["tries"], 2, "{result:?}");
    result.into_result().expect("there is one now");
    assert_eq!(fs::read_to_string(fixture.shared("runs")).expect("ran"), "run\n");
}
