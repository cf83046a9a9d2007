//! Hooks of the embedder: they can refuse, change and repair calls, but widen no grant.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use portcullis_testing::{Fixture, approving_caller};
use portcullis_tools::{
    Caller, PolicyFiles, ToolRegistry,
    approval::ApprovalAnswer,
    audit::{Decision, Outcome},
    hook::{BeforeCall, CallHook, HookedCall, InvalidCall},
    new_call,
};
use portcullis_types::{
    Access, ArgumentRole, SafetyTier, SandboxTier, ToolError, ToolErrorKind, ToolOutput, ToolResult,
};
use serde_json::{Value, json};

use crate::support::{ScriptedApprover, Spy, caller, caller_asking, fixture_enabling, raw_call};

type Result<T, E = ToolError> = std::result::Result<T, E>;
type Before = dyn Fn(&HookedCall) -> BeforeCall + Send + Sync;
type Repair = dyn Fn(&InvalidCall) -> Option<String> + Send + Sync;
type After = dyn Fn(Result<ToolOutput>) -> Result<ToolOutput> + Send + Sync;

/// A hook that runs closures, and records each question under its name.
#[derive(Clone)]
struct Hook {
    name: &'static str,
    questions: Arc<Mutex<Vec<String>>>,
    before: Arc<Before>,
    repair: Arc<Repair>,
    after: Arc<After>,
}

impl Hook {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            questions: Arc::default(),
            before: Arc::new(|_| BeforeCall::Allow),
            repair: Arc::new(|_| None),
            after: Arc::new(|outcome| outcome),
        }
    }

    fn before(mut self, before: impl Fn(&HookedCall) -> BeforeCall + Send + Sync + 'static) -> Self {
        self.before = Arc::new(before);
        self
    }

    fn repair(mut self, repair: impl Fn(&InvalidCall) -> Option<String> + Send + Sync + 'static) -> Self {
        self.repair = Arc::new(repair);
        self
    }

    fn after(
        mut self,
        after: impl Fn(Result<ToolOutput>) -> Result<ToolOutput> + Send + Sync + 'static,
    ) -> Self {
        self.after = Arc::new(after);
        self
    }

    /// Shares the list of questions with another hook.
    fn sharing_questions_with(mut self, other: &Self) -> Self {
        self.questions = Arc::clone(&other.questions);
        self
    }

    fn note(&self, text: impl std::fmt::Display) {
        self.questions.lock().expect("not poisoned").push(format!("{} {text}", self.name));
    }

    fn take_questions(&self) -> Vec<String> {
        std::mem::take(&mut *self.questions.lock().expect("not poisoned"))
    }
}

#[async_trait]
impl CallHook for Hook {
    async fn before(&self, call: &HookedCall) -> BeforeCall {
        self.note(format_args!("before {} {}", call.tool, call.arguments));
        (self.before)(call)
    }

    async fn repair(&self, call: &InvalidCall) -> Option<String> {
        self.note(format_args!("repair {} {}: {}", call.tool, call.arguments, call.error));
        (self.repair)(call)
    }

    async fn after(&self, call: &HookedCall, outcome: Result<ToolOutput>) -> Result<ToolOutput> {
        let outcome_text = match &outcome {
            Ok(output) => output.joined_text(),
            Err(error) => error.code().to_owned(),
        };
        self.note(format_args!("after {} {outcome_text}", call.tool));
        (self.after)(outcome)
    }
}

fn change_arguments(arguments: &Value) -> BeforeCall {
    BeforeCall::Modify { arguments: arguments.to_string() }
}

fn spy() -> Spy {
    let properties = json!({"n": {"type": "integer"}, "path": {"type": "string"}});
    Spy::repeating("spy")
        .parameters(json!({"type": "object", "properties": properties, "required": ["n"]}))
        .role(ArgumentRole::path("path", Access::Read))
}

fn registry(fixture: &Fixture, spy: Spy, hooks: &[Hook]) -> ToolRegistry {
    let files = PolicyFiles::find(&fixture.envelope()).expect("policy files");
    let policy = files.load(SandboxTier::Process).expect("a policy");
    let builder = ToolRegistry::builder().policy(policy).state(fixture.state()).tool(spy);
    hooks.iter().cloned().fold(builder, portcullis_tools::RegistryBuilder::hook).build().expect("builds")
}

/// Makes one call of the spy, and returns its result, how many times the spy ran, and the fixture.
async fn call(spy: Spy, hooks: &[Hook], arguments: &str, caller: &Caller) -> (ToolResult, usize, Fixture) {
    let fixture = fixture_enabling(&["spy"]);
    let calls = spy.calls();
    let result = registry(&fixture, spy, hooks).execute_with_policy(raw_call("spy", arguments), caller).await;
    let count = fixture.rows().iter().filter(|row| row.outcome.is_some()).count();
    assert_eq!(count, 1, "one end: {result:?}");
    (result, calls.load(Ordering::SeqCst), fixture)
}

#[track_caller]
fn assert_refused(result: &ToolResult, kind: ToolErrorKind, code: &str) -> String {
    let error = result.outcome.error().expect("refused");
    assert_eq!((error.kind(), error.code()), (kind, code), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_call_refused_by_a_hook_never_runs_and_says_why() {
    let hook = Hook::new("h").before(|_| BeforeCall::Deny { reason: "not on Sundays".into() });
    let (result, ran, fixture) = call(spy(), std::slice::from_ref(&hook), r#"{"n":1}"#, &caller()).await;
    let message = assert_refused(&result, ToolErrorKind::Denied, "hook_refused");
    assert_eq!(message, "the call of `spy` was refused by the embedding program (not on Sundays)");
    assert_eq!(ran, 0);
    let row = fixture.rows().remove(0);
    assert_eq!((row.decision, row.rule.as_deref()), (Some(Decision::Deny), Some("the program's hooks")));
    assert_eq!(row.outcome, Some(Outcome::Error(ToolErrorKind::Denied)));
    assert_eq!(hook.take_questions(), [r#"h before spy {"n":1}"#], "a call that did not run has no `after`");
}

#[tokio::test]
async fn a_hook_that_panics_refuses() {
    let panicking = Hook::new("h").before(|_| panic!("as asked"));
    let (result, ran, _) = call(spy(), &[panicking], r#"{"n":1}"#, &caller()).await;
    assert_refused(&result, ToolErrorKind::Denied, "hook_refused");
    assert_eq!(ran, 0);
}

struct NeverAnsweringBefore;

#[async_trait]
impl CallHook for NeverAnsweringBefore {
    async fn before(&self, _call: &HookedCall) -> BeforeCall {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_does_not_answer_refuses_after_ten_seconds() {
    let fixture = fixture_enabling(&["spy"]);
    let files = PolicyFiles::find(&fixture.envelope()).expect("policy files");
    let policy = files.load(SandboxTier::Process).expect("a policy");
    let spy = spy();
    let calls = spy.calls();
    let builder =
        ToolRegistry::builder().policy(policy).state(fixture.state()).tool(spy).hook(NeverAnsweringBefore);
    let registry = builder.build().expect("builds");
    let begun = tokio::time::Instant::now();
    let result = registry.execute_with_policy(raw_call("spy", r#"{"n":1}"#), &caller()).await;
    assert_refused(&result, ToolErrorKind::Denied, "hook_refused");
    assert_eq!(begun.elapsed().as_secs(), 10);
    // A cancelled call does not wait for the hook.
    let cancelled = caller();
    let cancelling = async {
        tokio::time::advance(Duration::from_secs(1)).await;
        cancelled.cancel.cancel();
    };
    let call = registry.execute_with_policy(raw_call("spy", r#"{"n":1}"#), &cancelled);
    let (result, ()) = tokio::join!(call, cancelling);
    assert_refused(&result, ToolErrorKind::Cancelled, "cancelled");
    assert_eq!((begun.elapsed().as_secs(), calls.load(Ordering::SeqCst)), (11, 0));
}

#[tokio::test]
async fn changed_arguments_are_those_that_run_and_those_on_record() {
    let hook = Hook::new("h").before(|_| change_arguments(&json!({"n": 2})));
    let (result, ran, fixture) = call(spy(), &[hook], r#"{"n":1}"#, &caller()).await;
    assert_eq!((result.model_text(), ran), (r#"{"n":2}"#.to_owned(), 1));
    assert_eq!(result.details, json!({"hooked": true}));
    let (_, _, unhooked_fixture) = call(spy(), &[], r#"{"n":2}"#, &caller()).await;
    assert_eq!(fixture.rows()[0].args_sha256, unhooked_fixture.rows()[0].args_sha256);
}

#[tokio::test]
async fn changed_arguments_are_checked_and_judged_like_any_others() {
    for (arguments, code) in [
        (r#"{"n":1,"path":"/etc/passwd"}"#, "unknown_mount"),
        (r#"{"n":1,"path":"../../x"}"#, "path_escapes_mount"),
    ] {
        let hook = Hook::new("h").before(move |_| BeforeCall::Modify { arguments: arguments.into() });
        let (result, ran, _) = call(spy(), &[hook], r#"{"n":1}"#, &caller()).await;
        assert_refused(&result, ToolErrorKind::Denied, code);
        assert_eq!(ran, 0, "{arguments}");
    }
}

#[tokio::test]
async fn a_model_gets_no_advice_on_arguments_from_a_hook() {
    let (_, _, unhooked_fixture) = call(spy(), &[], r#"{"n":1}"#, &caller()).await;
    for arguments in [r#"{"n":"x y"}"#, "{}", "no JSON"] {
        let hook = Hook::new("h").before(move |_| BeforeCall::Modify { arguments: arguments.into() });
        let (result, ran, fixture) = call(spy(), &[hook], r#"{"n":1}"#, &caller()).await;
        let message = assert_refused(&result, ToolErrorKind::Denied, "hook_refused");
        assert!(message.contains("a hook replaced its arguments by invalid ones"), "{message}");
        assert_eq!(ran, 0);
        assert_eq!(fixture.rows()[0].args_sha256, unhooked_fixture.rows()[0].args_sha256, "the model's own");
    }
}

#[tokio::test]
async fn hooks_run_in_order_before_and_in_reverse_order_after() {
    let first = Hook::new("first").before(|_| change_arguments(&json!({"n": 2})));
    let add = |word: &'static str| {
        move |outcome: Result<ToolOutput>| Ok(ToolOutput::text(format!("{} {word}", outcome?.joined_text())))
    };
    let first = first.after(add("first"));
    let second = Hook::new("second").after(add("second")).sharing_questions_with(&first);
    let (result, _, _) = call(spy(), &[first.clone(), second], r#"{"n":1}"#, &caller()).await;
    assert_eq!(result.model_text(), r#"{"n":2} second first"#);
    assert_eq!(
        first.take_questions(),
        [
            r#"first before spy {"n":1}"#,
            r#"second before spy {"n":2}"#,
            r#"second after spy {"n":2}"#,
            r#"first after spy {"n":2} second"#,
        ]
    );
}

#[tokio::test]
async fn approver_and_hooks_see_each_others_changes() {
    let hook = Hook::new("h").before(|call| match call.arguments["n"].as_u64() {
        Some(1) => change_arguments(&json!({"n": 2})),
        Some(3) => BeforeCall::Deny { reason: "not three".into() },
        _ => BeforeCall::Allow,
    });
    let approver = ScriptedApprover::new(|_, request| match request.arguments.as_str() {
        r#"{"n":2}"# => ApprovalAnswer::ApproveWith { arguments: json!({"n": 3}).to_string() },
        other => panic!("asked about {other}"),
    });
    let spy = spy().requiring_approval();
    let (result, ran, _) = call(spy, &[hook], r#"{"n":1}"#, &caller_asking(approver.clone())).await;
    assert_refused(&result, ToolErrorKind::Denied, "hook_refused");
    assert_eq!((ran, approver.requests().len()), (0, 1));
}

#[tokio::test]
async fn a_hooks_change_to_an_approvers_arguments_is_asked_about() {
    let hook = Hook::new("h").before(|call| match call.arguments["n"].as_u64() {
        Some(3) => change_arguments(&json!({"n": 4})),
        _ => BeforeCall::Allow,
    });
    let approver = ScriptedApprover::new(|number, _| match number {
        0 => ApprovalAnswer::ApproveWith { arguments: json!({"n": 3}).to_string() },
        _ => ApprovalAnswer::Deny { reason: None },
    });
    let spy = spy().requiring_approval();
    let (result, ran, _) = call(spy, &[hook], r#"{"n":1}"#, &caller_asking(approver.clone())).await;
    assert_refused(&result, ToolErrorKind::Denied, "approval_refused");
    let requests: Vec<String> = approver.requests().into_iter().map(|request| request.arguments).collect();
    assert_eq!((ran, requests), (0, vec![r#"{"n":1}"#.to_owned(), r#"{"n":4}"#.to_owned()]));
}

#[tokio::test]
async fn a_hook_may_repair_invalid_arguments() {
    let hook = Hook::new("h").repair(|call| {
        let number = call.arguments.split('=').nth(1)?;
        Some(format!(r#"{{"n":{number}}}"#))
    });
    let (result, ran, _) = call(spy(), std::slice::from_ref(&hook), "n=4", &caller()).await;
    assert_eq!((result.model_text(), ran), (r#"{"n":4}"#.to_owned(), 1));
    assert_eq!(result.details["hooked"], true);
    let questions = hook.take_questions();
    assert!(questions[0].starts_with("h repair spy n=4: "), "{questions:?}");
    assert_eq!(questions[1..], [r#"h before spy {"n":4}"#, r#"h after spy {"n":4}"#]);
    // Arguments that fit are not passed to `repair`.
    call(spy(), std::slice::from_ref(&hook), r#"{"n":1}"#, &caller()).await;
    assert!(!hook.take_questions().iter().any(|question| question.contains("repair")));
}

#[tokio::test]
async fn arguments_that_no_hook_repairs_keep_their_first_error() {
    let (first_result, _, unhooked_fixture) = call(spy(), &[], "{}", &caller()).await;
    let expected = assert_refused(&first_result, ToolErrorKind::InvalidArguments, "invalid_arguments");
    let hooks: [fn(&InvalidCall) -> Option<String>; 4] =
        [|_| None, |_| Some("no JSON".into()), |_| Some(r#"{"n":"x y"}"#.into()), |_| panic!("as asked")];
    for repair in hooks {
        let hook = Hook::new("h").repair(repair);
        let (result, ran, fixture) = call(spy(), &[hook], "{}", &caller()).await;
        assert_eq!(assert_refused(&result, ToolErrorKind::InvalidArguments, "invalid_arguments"), expected);
        assert_eq!(ran, 0);
        assert_eq!(fixture.rows()[0].args_sha256, unhooked_fixture.rows()[0].args_sha256);
    }
}

#[tokio::test]
async fn arguments_of_a_privileged_tool_are_not_repaired() {
    let hook = Hook::new("h").repair(|_| Some(r#"{"n":1}"#.into()));
    let spy = spy().tier(SafetyTier::Privileged);
    let (result, ran, _) = call(spy, std::slice::from_ref(&hook), "{}", &approving_caller()).await;
    assert_refused(&result, ToolErrorKind::InvalidArguments, "invalid_arguments");
    assert_eq!((ran, hook.take_questions().len()), (0, 0));
}

#[tokio::test]
async fn result_changed_by_a_hook_is_bounded() {
    let hook = Hook::new("h").after(|_| Ok(ToolOutput::text("x".repeat(100_000))));
    let (result, _, _) = call(spy(), &[hook], r#"{"n":1}"#, &caller()).await;
    assert!(result.truncated && result.model_text().len() < 17_000);
    let hook = Hook::new("h").after(|_| Err(ToolError::failed("it had a secret in it")));
    let (result, ran, fixture) = call(spy(), &[hook], r#"{"n":1}"#, &caller()).await;
    assert_eq!(assert_refused(&result, ToolErrorKind::Failed, "failed"), "it had a secret in it");
    assert_eq!(ran, 1);
    assert_eq!(fixture.rows()[0].outcome, Some(Outcome::Error(ToolErrorKind::Failed)));
}

#[tokio::test]
async fn a_page_of_a_stored_output_that_a_hook_makes_longer_is_cut() {
    let fixture = fixture_enabling(&["spy"]);
    let spy = Spy::new("spy", |_, _| async { Ok(ToolOutput::text("x".repeat(20_000))) });
    for lengthens in [false, true] {
        let hook = Hook::new("h").after(move |outcome| {
            let mut output = outcome?;
            let text = output.joined_text();
            output.content =
                vec![portcullis_types::Content::text(if lengthens { text.repeat(2) } else { text })];
            Ok(output)
        });
        let registry = registry(&fixture, spy.clone(), &[hook]);
        let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await;
        let page = json!({"call_id": result.details["output_id"], "limit": 18_000}).to_string();
        let read = registry.execute_with_policy(raw_call("output_read", &page), &caller()).await;
        assert_eq!(read.truncated, lengthens, "a page is not cut, but what is more than one is: {read:?}");
        let hint = read.rest_hint().expect("a hint");
        assert_eq!(hint.starts_with("[the whole page: "), lengthens, "{hint}");
        assert!(hint.contains("`output_read` with `offset` 18000 reads on]"), "{hint}");
    }
}

#[tokio::test]
async fn a_text_changed_by_a_hook_has_no_file_offset() {
    let hook = Hook::new("h").after(|outcome| {
        let mut output = outcome?;
        let text = output.joined_text().replace('x', "yy");
        output.content = vec![portcullis_types::Content::text(text)];
        Ok(output)
    });
    let fixture = Fixture::new();
    fixture.put("big.txt", "x".repeat(5_000_000));
    let registry = fixture.builder().await.expect("starts").hook(hook).build().expect("builds");
    let result =
        registry.execute_with_policy(raw_call("file_read", r#"{"path":"big.txt"}"#), &caller()).await;
    let answer_text = result.model_text();
    assert!(
        answer_text.starts_with("yy") && result.truncated && !answer_text.contains("byte_offset"),
        "{}",
        &answer_text[16_000..]
    );
    assert!(result.rest_hint().expect("a hint").starts_with("[up to byte 4,19"), "{:?}", result.rest_hint());
}

#[tokio::test]
async fn a_result_that_a_hook_could_not_be_asked_about_is_withheld() {
    let hook = Hook::new("h").after(|_| panic!("as asked"));
    let (result, ran, _) = call(spy(), &[hook], r#"{"n":1}"#, &caller()).await;
    let message = assert_refused(&result, ToolErrorKind::Failed, "hook_failed");
    assert!(message.contains("the call ran"), "{message}");
    assert_eq!((ran, result.details.get("output_id")), (1, None));
    // If the call failed, only the error's kind is kept.
    let hook = Hook::new("h").after(|_| panic!("as asked"));
    let failing = super::failing("spy", ToolError::not_found("the password is hunter2"));
    let (result, _, fixture) = call(failing, &[hook], "{}", &caller()).await;
    let message = assert_refused(&result, ToolErrorKind::NotFound, "hook_failed");
    assert!(!message.contains("hunter2") && !message.contains("ran"), "{message}");
    assert_eq!(fixture.rows()[0].outcome, Some(Outcome::Error(ToolErrorKind::NotFound)));
}

/// Never answers `repair` or `after`.
struct NeverAnsweringAfter;

#[async_trait]
impl CallHook for NeverAnsweringAfter {
    async fn repair(&self, _call: &InvalidCall) -> Option<String> {
        std::future::pending().await
    }

    async fn after(&self, _call: &HookedCall, _outcome: Result<ToolOutput>) -> Result<ToolOutput> {
        std::future::pending().await
    }
}

/// Makes a call with two hooks that never answer. Returns its duration in seconds and its result.
async fn call_behind_silent_hooks(arguments: &str, caller: &Caller) -> (u64, ToolResult) {
    let fixture = fixture_enabling(&["spy"]);
    let files = PolicyFiles::find(&fixture.envelope()).expect("policy files");
    let policy = files.load(SandboxTier::Process).expect("a policy");
    let builder = ToolRegistry::builder().policy(policy).state(fixture.state());
    let registry =
        builder.tool(spy()).hook(NeverAnsweringAfter).hook(NeverAnsweringAfter).build().expect("builds");
    let begun = tokio::time::Instant::now();
    let result = registry.execute_with_policy(raw_call("spy", arguments), caller).await;
    (begun.elapsed().as_secs(), result)
}

#[tokio::test(start_paused = true)]
async fn all_hooks_share_ten_seconds_and_one_after_cancellation() {
    let (took, result) = call_behind_silent_hooks(r#"{"n":1}"#, &caller()).await;
    assert_refused(&result, ToolErrorKind::Failed, "hook_failed");
    assert_eq!(took, 10);
    let cancelled_caller = caller();
    let cancel = cancelled_caller.cancel.clone();
    let cancelling = async {
        // The tool has run after this wait, because the paused clock advances only when all tasks are idle.
        tokio::time::timeout(Duration::from_secs(3), std::future::pending::<()>()).await.expect_err("later");
        cancel.cancel();
    };
    let ((took, result), ()) =
        tokio::join!(call_behind_silent_hooks(r#"{"n":1}"#, &cancelled_caller), cancelling);
    assert_refused(&result, ToolErrorKind::Failed, "hook_failed");
    assert_eq!(took, 4);
}

#[tokio::test(start_paused = true)]
async fn a_hook_without_a_repair_repairs_no_arguments() {
    let (took, result) = call_behind_silent_hooks("{}", &caller()).await;
    assert_refused(&result, ToolErrorKind::InvalidArguments, "invalid_arguments");
    assert_eq!(took, 20, "ten seconds each");
}

#[tokio::test]
async fn no_hook_makes_a_result_of_an_error() {
    let hook = Hook::new("h").after(|_| Ok(ToolOutput::text("all is well")));
    let failing = super::failing("spy", ToolError::failed("broken"));
    let (result, _, _) = call(failing, std::slice::from_ref(&hook), "{}", &caller()).await;
    assert_eq!(assert_refused(&result, ToolErrorKind::Failed, "failed"), "broken");
    assert_eq!(hook.take_questions().last().map(String::as_str), Some("h after spy failed"));
    // A hook may change the error's text.
    let hook = Hook::new("h").after(|_| Err(ToolError::failed("[redacted]")));
    let failing = super::failing("spy", ToolError::failed("the password is hunter2"));
    let (result, _, _) = call(failing, &[hook], "{}", &caller()).await;
    assert_eq!(assert_refused(&result, ToolErrorKind::Failed, "failed"), "[redacted]");
}

#[tokio::test]
async fn an_operation_is_asked_about_once_and_its_steps_are_not() {
    let fixture = Fixture::new();
    let vault = fixture.workspace().join("vault");
    let hook = Hook::new("h");
    let builder = fixture.builder().await.expect("bootstraps").hook(hook.clone());
    let registry = builder.build().expect("builds");
    std::fs::write(vault.join("key"), "secret").expect("writable");
    let arguments = BTreeMap::from([("source_path", "/vault/key"), ("destination_path", "/shared/key")]);
    let copy = new_call("vault_copyto", json!(arguments).to_string());
    registry.execute_with_policy(copy, &approving_caller()).await.into_result().expect("copied");
    let questions = hook.take_questions();
    assert_eq!(questions.len(), 2, "{questions:?}");
    assert!(
        questions[0].starts_with("h before vault_copyto ")
            && questions[1].starts_with("h after vault_copyto ")
    );
    // A guest's call passes through the hook in the same way.
    fixture.put("a.txt", "a");
    let read = new_call("file_read", json!({"path": "a.txt"}).to_string());
    assert_eq!(registry.execute_with_policy(read, &approving_caller()).await.model_text(), "a");
    assert_eq!(hook.take_questions(), [r#"h before file_read {"path":"a.txt"}"#, "h after file_read a"]);
}
