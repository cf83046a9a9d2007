//! Retries: which failures are tried again, and that no effect happens twice.

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
use portcullis_testing::{World, approving, binary};
use portcullis_tools::{
    Caller, ToolRegistry,
    approval::ApprovalAnswer,
    audit::{Event, Outcome},
    shell::{SHELL_EXEC, ShellSource},
};
use portcullis_types::{SafetyTier, ToolError, ToolErrorKind, ToolMeta, ToolOutput};
use serde_json::{Value, json};

use super::failing;
use crate::support::{Scripted, Spy, asking, caller, natives, raw, world_enabling};

/// A spy that is unavailable the first times.
fn missing(times: usize) -> Spy {
    let tries = Arc::new(AtomicUsize::new(0));
    Spy::new("spy", move |_, _| {
        let is_there = tries.fetch_add(1, Ordering::SeqCst) >= times;
        async move { if is_there { Ok(ToolOutput::text("done")) } else { Err(ToolError::unavailable("not now")) } }
    })
}

/// How often a call of the tool was tried, the tries in its details, and its result.
async fn tried(spy: Spy) -> (usize, Value, String) {
    let world = world_enabling(&["spy"]);
    let calls = spy.calls();
    let asked = Scripted::new(|_, _| ApprovalAnswer::Approve);
    let registry = natives(&world, [spy]);
    let result = registry.execute_with_policy(raw("spy", "{}"), &asking(asked.clone())).await;
    let ends = world.rows().into_iter().filter(|row| row.event == Event::End).count();
    assert_eq!(ends, 1, "a call has one end, however often it is tried");
    assert!(asked.requests().len() <= 1, "and one question");
    (calls.load(Ordering::SeqCst), result.details["tries"].clone(), result.model_text())
}

#[tokio::test]
async fn a_read_only_tool_is_retried_when_unavailable() {
    assert_eq!(tried(missing(0)).await, (1, Value::Null, "done".into()));
    assert_eq!(tried(missing(1)).await, (2, json!(2), "done".into()));
    assert_eq!(tried(missing(2)).await, (3, json!(3), "done".into()));
    assert_eq!(tried(missing(9)).await, (3, json!(3), "Tool execution failed: not now".into()));
}

#[tokio::test]
async fn tool_with_effects_is_retried_only_if_idempotent() {
    for tier in [SafetyTier::SideEffecting, SafetyTier::Privileged] {
        let failed = "Tool execution failed: not now".to_owned();
        assert_eq!(tried(missing(1).tier(tier)).await, (1, Value::Null, failed));
        let meta = ToolMeta { idempotent: true, ..ToolMeta::default() };
        assert_eq!(tried(missing(1).tier(tier).meta(meta)).await, (2, json!(2), "done".into()));
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
        assert_eq!(tried(failing("spy", error)).await.0, 1, "{kind}");
    }
}

#[tokio::test]
async fn tool_that_made_nested_calls_is_not_retried() {
    let world = world_enabling(&["outer", "effect"]);
    let cell: Arc<OnceLock<Arc<ToolRegistry>>> = Arc::default();
    let registries = Arc::clone(&cell);
    let effect = Spy::new("effect", |_, _| async { Err(ToolError::unavailable("half of it is done")) });
    let effects = effect.calls();
    let meta = ToolMeta { idempotent: true, ..ToolMeta::default() };
    let outer = Spy::new("outer", move |ctx, _| {
        let registry = Arc::clone(registries.get().expect("set"));
        async move { registry.execute_with_policy(raw("effect", "{}"), &Caller::nested(&ctx)).await.outcome }
    });
    let registry = Arc::new(natives(&world, [effect.tier(SafetyTier::SideEffecting), outer.meta(meta)]));
    assert!(cell.set(Arc::clone(&registry)).is_ok());
    let result = registry.execute_with_policy(raw("outer", "{}"), &caller()).await;
    assert_eq!(result.model_text(), "Tool execution failed: half of it is done");
    assert_eq!((effects.load(Ordering::SeqCst), result.details.get("tries")), (1, None));
    drop(cell);
}

#[tokio::test]
async fn no_try_waits_for_a_moment_after_the_deadline() {
    let world = world_enabling(&["spy"]);
    let registry = natives(&world, [missing(1000)]);
    // On a busy machine even the first try may come after the deadline; a try after a pause always would.
    for _ in 0..50 {
        let mut hurried = caller();
        hurried.turn_deadline = Some(Instant::now() + Duration::from_millis(95));
        let result = registry.execute_with_policy(raw("spy", "{}"), &hurried).await;
        if result.outcome.expect_err("not there").kind() == ToolErrorKind::Unavailable {
            assert_eq!(result.details.get("tries"), None);
            return;
        }
    }
    panic!("each of them waited until its time was up");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_between_two_tries_ends_at_once() {
    let world = world_enabling(&["spy"]);
    let spy = missing(9);
    let calls = spy.calls();
    let registry = natives(&world, [spy]);
    let caller = caller();
    let begun = tokio::time::Instant::now();
    let call = registry.execute_with_policy(raw("spy", "{}"), &caller);
    let cancelling = async {
        // The clock stands still during this loop, so the pause after the first try does not end.
        let until = Instant::now() + Duration::from_millis(300);
        while calls.load(Ordering::SeqCst) == 0 || Instant::now() < until {
            tokio::task::yield_now().await;
        }
        caller.cancel.cancel();
    };
    let (result, ()) = tokio::join!(call, cancelling);
    assert_eq!(result.outcome.expect_err("given up").kind(), ToolErrorKind::Cancelled);
    assert_eq!((calls.load(Ordering::SeqCst), begun.elapsed()), (1, Duration::ZERO));
    assert_eq!(world.rows()[0].outcome, Some(Outcome::Error(ToolErrorKind::Cancelled)));
}

#[tokio::test]
async fn all_tries_of_a_call_share_a_key_that_no_other_call_has() {
    let world = world_enabling(&["spy"]);
    let keys = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&keys);
    let spy = Spy::new("spy", move |ctx, _| {
        let mut keys = sink.lock().expect("not poisoned");
        keys.push(ctx.idempotency_key.clone());
        let is_second = keys.len().is_multiple_of(2);
        async move { if is_second { Ok(ToolOutput::text("")) } else { Err(ToolError::unavailable("not now")) } }
    });
    let registry = natives(&world, [spy]);
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
        let mut call = raw("spy", "{}");
        call.id = id.to_owned();
        registry.execute_with_policy(call, &caller).await.outcome.expect("the second time");
    }
    let keys = keys.lock().expect("not poisoned").clone();
    assert!(keys.chunks(2).all(|tries| tries[0] == tries[1]), "{keys:?}");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 6, "{keys:?}");
    for key in &keys {
        assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    }
}

/// A registry whose sidecar is the program at this path.
async fn with_sidecar(world: &World, program: &Path) -> ToolRegistry {
    let place = ShellSource::Own(Arc::new(OwnSidecar::new(program)));
    world.builder().await.expect("bootstraps").shell(place).build().expect("builds")
}

#[tokio::test]
async fn a_command_that_finds_no_sidecar_is_tried_again_and_runs_once() {
    let world = World::new();
    let command = json!({"command": "echo run >> /shared/runs"}).to_string();
    let none = with_sidecar(&world, Path::new("/bin/false")).await;
    let result = none.execute_with_policy(raw(SHELL_EXEC, &command), &approving()).await;
    assert_eq!(result.details["tries"], 3, "{result:?}");
    assert_eq!(result.outcome.expect_err("no sidecar").code(), "shell_unavailable");

    // A program that puts the sidecar in its own place, but is no sidecar itself.
    let program = world.root().join("sidecar");
    let own = program.display();
    let script = format!(
        "#!/bin/sh\n/bin/ln -s '{}' '{own}.new' && /bin/mv '{own}.new' '{own}'\nexit 1\n",
        binary().display()
    );
    fs::write(&program, script).expect("writable");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("set");
    let late = with_sidecar(&world, &program).await;
    let result = late.execute_with_policy(raw(SHELL_EXEC, &command), &approving()).await;
    assert_eq!(result.details["tries"], 2, "{result:?}");
    result.outcome.expect("there is one now");
    assert_eq!(fs::read_to_string(world.shared("runs")).expect("ran"), "run\n");
}
