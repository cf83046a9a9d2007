//! What is tried again, and that nothing is done twice by it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use portcullis::OwnSidecar;
use portcullis_tests::{World, approving, binary};
use portcullis_tools::{
    approval::{ApprovalAnswer, Approver},
    audit::Event,
    shell::{SHELL_EXEC, ShellPlace},
};
use portcullis_types::{SafetyTier, ToolError, ToolMeta, ToolOutput};
use serde_json::{Value, json};

use super::failing;
use crate::support::{Scripted, Spy, asking, caller, natives, raw, world_enabling};

/// A spy that needs something that is not there the first times.
fn missing(times: usize) -> Spy {
    let tries = Arc::new(AtomicUsize::new(0));
    Spy::new("spy", move |_, _| {
        let is_there = tries.fetch_add(1, Ordering::SeqCst) >= times;
        async move { if is_there { Ok(ToolOutput::text("done")) } else { Err(ToolError::unavailable("not now")) } }
    })
}

/// How often a call of the tool was tried, what its details say of that, and what came of it.
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
async fn what_reads_only_is_tried_again_where_something_was_unavailable() {
    assert_eq!(tried(missing(0)).await, (1, Value::Null, "done".into()));
    assert_eq!(tried(missing(1)).await, (2, json!(2), "done".into()));
    assert_eq!(tried(missing(2)).await, (3, json!(3), "done".into()));
    assert_eq!(tried(missing(9)).await, (3, json!(3), "Tool execution failed: not now".into()));
}

#[tokio::test]
async fn what_has_effects_is_tried_again_only_if_it_is_idempotent() {
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
async fn no_try_begins_after_the_deadline_or_a_cancellation() {
    let world = world_enabling(&["spy"]);
    let spy = missing(9);
    let calls = spy.calls();
    let registry = natives(&world, [spy]);
    let mut hurried = caller();
    hurried.turn_deadline = Some(Instant::now() + Duration::from_millis(90));
    registry.execute_with_policy(raw("spy", "{}"), &hurried).await.outcome.expect_err("not there");
    assert!(calls.swap(0, Ordering::SeqCst) <= 1);

    let world = world_enabling(&["spy"]);
    let gone = caller();
    let cancel = gone.cancel.clone();
    let spy = Spy::new("spy", move |_, _| {
        cancel.cancel();
        async { Err(ToolError::unavailable("not now")) }
    });
    let calls = spy.calls();
    let registry = natives(&world, [spy]);
    registry.execute_with_policy(raw("spy", "{}"), &gone).await.outcome.expect_err("given up");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn all_tries_of_a_call_have_one_key_and_no_two_calls_have_the_same() {
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
    for (run, id) in [("run", "c1"), ("run", "c2"), ("other", "c1"), ("runc", "1"), ("run", "c\r\nx: y")] {
        let mut caller = caller();
        caller.run_id = run.to_owned();
        let mut call = raw("spy", "{}");
        call.id = id.to_owned();
        registry.execute_with_policy(call, &caller).await.outcome.expect("the second time");
    }
    let keys = keys.lock().expect("not poisoned").clone();
    assert!(keys.chunks(2).all(|tries| tries[0] == tries[1]), "{keys:?}");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 5, "{keys:?}");
    for key in &keys {
        assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    }
}

#[tokio::test]
async fn a_command_that_found_no_sidecar_is_tried_again_and_runs_once() {
    let world = World::new();
    // One that is no program of ours the first time.
    let program = world.root().join("sidecar");
    std::os::unix::fs::symlink("/bin/false", &program).expect("a link");
    let mends = Mends { program: program.clone(), at: Mutex::new(None) };
    let own = OwnSidecar::new(program);
    let place = ShellPlace::Own(Arc::new(own));
    let registry = world.builder().await.expect("bootstraps").shell(place).build().expect("builds");
    let command = json!({"command": "echo run >> /shared/runs"}).to_string();
    let result = registry.execute_with_policy(raw(SHELL_EXEC, &command), &approving()).await;
    assert_eq!(result.details["tries"], 3, "{result:?}");
    assert_eq!(result.outcome.expect_err("no sidecar").code(), "shell_unavailable");
    let result = registry.execute_with_policy(raw(SHELL_EXEC, &command), &asking(mends)).await;
    result.outcome.expect("there is one now");
    assert_eq!(std::fs::read_to_string(world.shared("runs")).expect("ran"), "run\n");
}

/// Puts the sidecar's program in its place a moment after it has said yes.
struct Mends {
    program: std::path::PathBuf,
    at: Mutex<Option<std::thread::JoinHandle<()>>>,
}

#[async_trait::async_trait]
impl Approver for Mends {
    async fn decide(&self, _request: &portcullis_tools::approval::ApprovalRequest) -> ApprovalAnswer {
        let program = self.program.clone();
        let mending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let beside = program.with_extension("new");
            std::os::unix::fs::symlink(binary(), &beside).expect("a link");
            std::fs::rename(beside, program).expect("in its place");
        });
        *self.at.lock().expect("not poisoned") = Some(mending);
        ApprovalAnswer::Approve
    }
}
