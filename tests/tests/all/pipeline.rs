//! The steps of a call: each step's refusals, and that a refused call reaches no later step.

mod arguments;
mod bounds;
mod endings;
mod external;
mod failures;
mod heartbeat;
mod hooks;
mod outputs;
mod retries;
mod slots;
mod timeouts;

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::{
    Caller, ToolCall,
    approval::{ApprovalAnswer, ApprovalPolicy, ApprovalRule},
    audit::{Decision, Outcome, RowEvent},
    policy::ToolDescriptor,
};
use portcullis_types::{
    Access, ArgumentRole, RoleKind, SafetyTier, ToolError,
    ToolErrorKind::{self, Denied, InvalidArguments, NotFound, RateLimited},
    ToolEvent, ToolOutput,
};
use serde_json::{Value, json};

use crate::support::{
    ScriptedApprover, Spy, caller, caller_asking, enabling_entry, fixture_enabling, native_registry,
    raw_call, record_events,
};

#[tokio::test]
async fn a_guest_reads_a_file_through_the_pipeline_and_leaves_a_row() {
    let fixture = Fixture::new();
    fixture.put("README.md", "hello, guest\n");
    let registry = fixture.registry().await;
    let answer = CallOutcome::run(&registry, "file_read", json!({"path": "/shared/README.md"})).await;
    assert_eq!(answer.text(), "hello, guest\n");
    let rows = fixture.rows();
    assert_eq!(rows.len(), 1, "{rows:#?}");
}

/// An approval policy with one rule for all calls.
pub(crate) struct Always(pub(crate) ApprovalRule);

impl ApprovalPolicy for Always {
    fn decide(&self, _tool: &ToolDescriptor, _arguments: &Value) -> ApprovalRule {
        self.0.clone()
    }
}

fn spy() -> Spy {
    let properties = json!({"path": {"type": "string"}, "n": {"type": "integer"}, "url": {"type": "string"},
        "command": {"type": "string"}});
    Spy::repeating("spy")
        .tier(SafetyTier::SideEffecting)
        .parameters(json!({"type": "object", "properties": properties, "required": ["n"]}))
        .role(ArgumentRole::path("path", Access::Write))
        .role(ArgumentRole { argument: "url".into(), role: RoleKind::Url })
        .role(ArgumentRole { argument: "command".into(), role: RoleKind::Command })
}

/// Makes one call of a spy. Asserts a refusal, one row, and that the spy was never polled.
#[track_caller]
fn check(
    policy: &str,
    adjust: impl FnOnce(&mut Caller),
    call: ToolCall,
    kind: ToolErrorKind,
    code: &str,
) -> impl Future<Output = ()> {
    let fixture = Fixture::new().with_policy(policy);
    let spy = spy();
    let calls = spy.calls();
    let mut caller = caller();
    adjust(&mut caller);
    let code = code.to_owned();
    let caller_location = std::panic::Location::caller();
    async move {
        let registry = native_registry(&fixture, [spy]);
        let events = record_events(&mut caller);
        let id = call.id.clone();
        let result = registry.execute_with_policy(call, &caller).await;
        let error = result.into_result().expect_err("refused");
        assert_eq!((error.kind(), error.code()), (kind, code.as_str()), "{caller_location}: {error}");
        assert_eq!(calls.load(Ordering::SeqCst), 0, "{caller_location}: the tool was polled");
        let events = events.lock().expect("not poisoned").clone();
        assert!(!events.iter().any(|event| event.starts_with("started")), "{caller_location}: {events:?}");
        assert_eq!(events.last(), Some(&format!("finished {kind}")), "{caller_location}");
        let rows = fixture.rows();
        assert_eq!(rows.len(), 1, "{caller_location}: {rows:#?}");
        assert_eq!(&*rows[0].call_id, id);
        assert_eq!(
            (rows[0].event, rows[0].outcome),
            (RowEvent::End, Some(Outcome::Error(kind))),
            "{caller_location}"
        );
        assert_eq!(rows[0].code.as_deref(), Some(code.as_str()), "{caller_location}");
        if kind == Denied {
            assert_eq!(rows[0].decision, Some(Decision::Deny), "{caller_location}");
            assert!(rows[0].rule.is_some(), "{caller_location}");
        }
    }
}

#[tokio::test]
async fn a_refusal_at_any_step_polls_no_tool_and_leaves_one_row() {
    let enabled_entry = enabling_entry("spy");
    let fitting_call = || raw_call("spy", r#"{"n":1}"#);
    check(&enabled_entry, |_| {}, raw_call("spi", r#"{"n":1}"#), NotFound, "unknown_tool").await;
    check(&enabled_entry, |_| {}, raw_call("SPY", r#"{"n":1}"#), NotFound, "unknown_tool").await;
    check(&enabled_entry, |_| {}, raw_call("", "{}"), NotFound, "unknown_tool").await;
    check(&enabled_entry, |_| {}, raw_call("spy", "{}"), InvalidArguments, "invalid_arguments").await;
    check("", |_| {}, fitting_call(), Denied, "native_not_enabled").await;
    check("[tools.spy]\nenabled = false", |_| {}, fitting_call(), Denied, "tool_disabled").await;
    check("[tools.spy]\ntimeout = \"1s\"", |_| {}, fitting_call(), Denied, "native_not_enabled").await;
    check(&format!("{enabled_entry}approval = \"deny\""), |_| {}, fitting_call(), Denied, "approval_denied")
        .await;
    check(
        &format!("{enabled_entry}approval = \"ask\""),
        |_| {},
        fitting_call(),
        Denied,
        "approval_unavailable",
    )
    .await;
    let deny = ApprovalRule::Deny { reason: "not today".to_owned() };
    check(
        &enabled_entry,
        |caller| caller.approval_policy = Some(Arc::new(Always(deny))),
        fitting_call(),
        Denied,
        "approval_denied",
    )
    .await;
    let ask = Always(ApprovalRule::Ask);
    check(
        &enabled_entry,
        |caller| caller.approval_policy = Some(Arc::new(ask)),
        fitting_call(),
        Denied,
        "approval_unavailable",
    )
    .await;
    for (arguments, code) in [
        (r#"{"n":1,"path":"/etc/passwd"}"#, "unknown_mount"),
        (r#"{"n":1,"path":"/vault/x"}"#, "mount_not_granted"),
        (r#"{"n":1,"path":"../vault/x"}"#, "path_escapes_mount"),
        (r#"{"n":1,"path":"/shared/.git/hooks/x"}"#, "protected_path"),
        (r#"{"n":1,"url":"https://example.com/"}"#, "egress_not_granted"),
        (r#"{"n":1,"command":"true"}"#, "commands_not_granted"),
    ] {
        check(&enabled_entry, |_| {}, raw_call("spy", arguments), Denied, code).await;
    }
}

#[tokio::test]
async fn earliest_refusing_step_gives_the_reason() {
    let enabled_entry = enabling_entry("spy");
    // `check` comes before `admit`.
    check("", |_| {}, raw_call("spy", "{}"), InvalidArguments, "invalid_arguments").await;
    // `admit` comes before `authorize`.
    check("", |_| {}, raw_call("spy", r#"{"n":1,"path":"/etc/passwd"}"#), Denied, "native_not_enabled").await;
    // The path is checked before the approval, so that the approver is not asked about a forbidden call.
    let scripted = ScriptedApprover::new(|_, _| ApprovalAnswer::Approve);
    let approver = scripted.clone();
    let escaping = raw_call("spy", r#"{"n":1,"path":"/etc/passwd"}"#);
    let adjust = |caller: &mut Caller| caller.approver = Some(Arc::new(approver));
    check(&format!("{enabled_entry}approval = \"ask\""), adjust, escaping, Denied, "unknown_mount").await;
    assert!(scripted.requests().is_empty());
}

#[tokio::test]
async fn the_rate_is_counted_per_agent_and_tool() {
    let edit = |fixture: Fixture| fixture.with_policy_edit("calls_per_minute = 600", "calls_per_minute = 2");
    let fixture = edit(fixture_enabling(&["one", "two"]));
    let spies = [Spy::repeating("one"), Spy::repeating("two")];
    let calls = spies[0].calls();
    let registry = native_registry(&fixture, spies);
    for agent in ["a", "b"] {
        for tool in ["one", "two"] {
            let caller = Caller::new(agent, "run");
            for _ in 0..2 {
                let result = registry.execute_with_policy(raw_call(tool, "{}"), &caller).await;
                assert!(result.outcome.is_output(), "{agent} {tool}: {:?}", result.outcome);
            }
            // Another run of the same agent shares the agent's allowance.
            let result =
                registry.execute_with_policy(raw_call(tool, "{}"), &Caller::new(agent, "other")).await;
            let error = result.into_result().expect_err("too often");
            assert_eq!((error.kind(), error.code()), (RateLimited, "rate_limited"));
            assert_eq!(error.hint(), Some("wait a little, then try again"));
        }
    }
    assert_eq!(calls.load(Ordering::SeqCst), 4, "the refused ones never ran");
    assert_eq!(fixture.rows().len(), 12);
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_the_nearest_names() {
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    for (requested_name, near) in [
        ("file_raed", "`file_read`"),
        ("File_Read", "`file_read`"),
        ("fileread", "`file_read`"),
        ("get_curent_time", "`get_current_time`"),
    ] {
        let answer = CallOutcome::run(&registry, requested_name, json!({})).await;
        let hint = answer.error().hint().expect("a suggestion").to_owned();
        assert!(hint.starts_with(&format!("did you mean {near}")), "{requested_name}: {hint}");
        answer.assert_refused(NotFound, "unknown_tool");
    }
    let odd_name = format!("\u{1b}[2J\u{202e}{}", "x".repeat(100_000));
    let answer = CallOutcome::run(&registry, &odd_name, json!({})).await;
    let message = answer.assert_refused(NotFound, "unknown_tool");
    assert!(message.len() < 1000 && message.is_ascii() && !message.contains('\u{1b}'), "{message}");
    assert!(fixture.rows().iter().all(|row| row.tool.len() <= 512));
}

#[tokio::test]
async fn events_come_in_the_order_of_the_steps() {
    let fixture = fixture_enabling(&["spy"]).with_policy("[tools.reporter]\nenabled = true");
    let reporter = Spy::new("reporter", |ctx, _| async move {
        ctx.progress("half");
        ctx.update(ToolOutput::text("part"));
        Ok(ToolOutput::text("whole"))
    });
    let registry = native_registry(&fixture, [spy().requiring_approval(), reporter]);
    let mut caller = caller_asking(ScriptedApprover::new(|number, _| match number {
        0 => ApprovalAnswer::Approve,
        _ => ApprovalAnswer::Deny { reason: None },
    }));
    let events = record_events(&mut caller);
    let take_events = || std::mem::take(&mut *events.lock().expect("not poisoned"));
    let run = async |tool: &str, arguments: &str| {
        registry.execute_with_policy(raw_call(tool, arguments), &caller).await
    };

    run("spy", r#"{"n":1}"#).await;
    assert_eq!(
        take_events(),
        ["requested spy", "approval requested", "approval true", "started spy", "finished"]
    );
    run("spy", r#"{"n":2}"#).await;
    assert_eq!(take_events(), ["requested spy", "approval requested", "approval false", "finished denied"]);
    run("spy", "{}").await;
    assert_eq!(take_events(), ["requested spy", "finished invalid_arguments"]);
    run("reporter", "{}").await;
    assert_eq!(
        take_events(),
        ["requested reporter", "started reporter", "progress half", "update part", "finished"]
    );
}

#[tokio::test]
async fn a_guests_progress_reaches_listeners_and_not_the_result() {
    let fixture = Fixture::new();
    let registry = fixture.registry_with(&["progress_then_ok"]).await;
    let mut caller = approving_caller();
    let events = record_events(&mut caller);
    let texts = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&texts);
    caller.on_progress = Some(Arc::new(move |text| sink.lock().expect("not poisoned").push(text)));
    let result = registry.execute_with_policy(raw_call("progress_then_ok", "{}"), &caller).await;
    assert_eq!(result.model_text(), "whole");
    assert_eq!(
        *events.lock().expect("not poisoned"),
        [
            "requested progress_then_ok",
            "approval requested",
            "approval true",
            "started progress_then_ok",
            "progress step 1",
            "update part 1",
            "progress step 2",
            "update part 2",
            "progress step 3",
            "finished",
        ]
    );
    assert_eq!(*texts.lock().expect("not poisoned"), ["step 1", "step 2", "step 3"]);
}

#[tokio::test]
async fn the_row_is_recorded_before_the_end_is_reported() {
    let fixture = Arc::new(fixture_enabling(&["spy"]));
    let registry = native_registry(&fixture, [Spy::repeating("spy").timeout(Duration::from_secs(5))]);
    let mut caller = caller();
    let row_counts = Arc::new(Mutex::new(Vec::new()));
    let (sink, observed_fixture) = (Arc::clone(&row_counts), Arc::clone(&fixture));
    caller.on_event = Some(Arc::new(move |event| {
        let count = match event {
            ToolEvent::Finished { .. } => observed_fixture.rows().len(),
            _ => return,
        };
        sink.lock().expect("not poisoned").push(count);
    }));
    registry.execute_with_policy(raw_call("spy", "{}"), &caller).await.into_result().expect("runs");
    registry.execute_with_policy(raw_call("nobody", "{}"), &caller).await.into_result().expect_err("refused");
    assert_eq!(*row_counts.lock().expect("not poisoned"), [1, 2]);
}

/// Creates a spy that fails with this error.
pub(crate) fn failing(name: &str, error: ToolError) -> Spy {
    Spy::new(name, move |_, _| {
        let error = error.clone();
        async move { Err(error) }
    })
}
