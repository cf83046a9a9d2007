//! Answers that are not a clear yes, and answers that change the call.

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use async_trait::async_trait;
use portcullis_testing::Fixture;
use portcullis_tools::{
    approval::{ApprovalAnswer, ApprovalPolicy, ApprovalRequest, ApprovalRule, Approver, AttributedAnswer},
    audit::Outcome,
    policy::ToolDescriptor,
};
use portcullis_types::ToolErrorKind::{self, Cancelled, Denied, InvalidArguments};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{HARMLESS, call_outcome, expected_refusal, fixture, run, spy};
use crate::support::{ScriptedApprover, Spy, caller_asking, native_registry, raw_call, record_events};

#[tokio::test]
async fn an_approver_that_panics_means_no() {
    let panicking = ScriptedApprover::new(|_, _| panic!("at the approver's"));
    assert_eq!(
        call_outcome(&fixture(), spy(), &caller_asking(panicking)).await,
        expected_refusal("approval_unavailable")
    );
}

/// An approver that signals that it was asked and never answers.
struct NeverAnswering(Arc<Notify>);

#[async_trait]
impl Approver for NeverAnswering {
    async fn decide(&self, _request: &ApprovalRequest) -> AttributedAnswer {
        self.0.notify_one();
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn an_approver_that_never_answers_means_no() {
    let before = tokio::time::Instant::now();
    let caller = caller_asking(NeverAnswering(Arc::default()));
    assert_eq!(call_outcome(&fixture(), spy(), &caller).await, expected_refusal("approval_timed_out"));
    let waited = before.elapsed();
    assert!(waited >= portcullis_tools::approval::APPROVAL_TIMEOUT, "{waited:?}");
}

#[tokio::test]
async fn a_call_cancelled_during_its_approval_never_runs() {
    let fixture = fixture();
    let spy = spy();
    let calls = spy.calls();
    let registry = native_registry(&fixture, [spy]);
    let was_asked = Arc::new(Notify::new());
    let mut caller = caller_asking(NeverAnswering(Arc::clone(&was_asked)));
    let events = record_events(&mut caller);
    let cancelling = async {
        was_asked.notified().await;
        caller.cancel.cancel();
    };
    let (result, ()) = tokio::join!(run(&registry, &caller), cancelling);
    assert_eq!(result.into_result().expect_err("cancelled").kind(), Cancelled);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let rows = fixture.rows();
    assert_eq!(rows.len(), 1, "it never began");
    assert_eq!(rows[0].outcome, Some(Outcome::Error(Cancelled)));
    assert_ne!(rows[0].approval.as_deref(), Some("approved"));
    assert_eq!(
        *events.lock().expect("not poisoned"),
        ["requested spy", "approval requested", "finished cancelled"]
    );
}

/// An approver that replaces the arguments of the first question, and then approves.
fn changing_approver(arguments: &str) -> ScriptedApprover {
    let arguments = arguments.to_owned();
    ScriptedApprover::new(move |number, _| match number {
        0 => ApprovalAnswer::ApproveWith { arguments: arguments.clone() },
        _ => ApprovalAnswer::Approve,
    })
}

#[tokio::test]
async fn changed_arguments_pass_every_check_again() {
    let changed = r#"{"path":"/tmp/b","n":2}"#;
    let fixture = fixture();
    let approver = changing_approver(changed);
    let registry = native_registry(&fixture, [spy()]);
    let result = run(&registry, &caller_asking(approver.clone())).await;
    assert_eq!(result.into_result().expect("approved").joined_text(), changed, "the tool got the new ones");
    let requests = approver.requests();
    assert_eq!(requests.iter().map(|request| &*request.arguments).collect::<Vec<_>>(), [HARMLESS, changed]);
    assert_ne!(requests[0].binding, requests[1].binding);
    for row in fixture.rows() {
        assert_eq!(&*row.subjects[0].value, "/tmp/b", "the row names what was touched");
        assert_eq!(row.approval.as_deref(), Some("approved"));
    }
}

#[tokio::test]
async fn forbidden_changed_arguments_are_refused_and_nothing_runs() {
    let cases: [(&str, ToolErrorKind, &str); 7] = [
        ("{", InvalidArguments, "invalid_arguments"),
        ("{}", InvalidArguments, "invalid_arguments"),
        (r#"{"path":"/shared/a","n":10}"#, InvalidArguments, "invalid_arguments"),
        (r#"{"path":"/shared/a","path":"/shared/b"}"#, InvalidArguments, "invalid_arguments"),
        (r#"{"path":"/etc/passwd"}"#, Denied, "unknown_mount"),
        (r#"{"path":"/vault/x"}"#, Denied, "mount_not_granted"),
        (r#"{"path":"/shared/.git/hooks/x"}"#, Denied, "protected_path"),
    ];
    for (arguments, kind, code) in cases {
        let fixture = fixture();
        let spy = spy();
        let calls = spy.calls();
        let registry = native_registry(&fixture, [spy]);
        let error = run(&registry, &caller_asking(changing_approver(arguments)))
            .await
            .into_result()
            .expect_err(arguments);
        assert_eq!((error.kind(), error.code()), (kind, code), "{arguments}");
        assert_eq!(calls.load(Ordering::SeqCst), 0, "{arguments}");
        let rows = fixture.rows();
        assert_eq!(rows.len(), 1, "{arguments}");
        assert_eq!(rows[0].approval.as_deref(), Some("approved_with_changes"), "{arguments}");
    }
}

/// Asks about calls with `n` equal to 1.
struct AskAboutOne;

impl ApprovalPolicy for AskAboutOne {
    fn decide(&self, _tool: &ToolDescriptor, arguments: &Value) -> ApprovalRule {
        if arguments["n"] == 1 { ApprovalRule::Ask } else { ApprovalRule::Allow }
    }
}

#[tokio::test]
async fn a_row_notes_changed_arguments_even_if_they_need_no_approval() {
    let fixture = fixture();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let registry = native_registry(&fixture, [Spy::repeating("spy").parameters(schema)]);
    let approver = changing_approver(r#"{"n":2}"#);
    let mut caller = caller_asking(approver.clone());
    caller.approval_policy = Some(Arc::new(AskAboutOne));
    registry.execute_with_policy(raw_call("spy", r#"{"n":1}"#), &caller).await.into_result().expect("runs");
    assert_eq!(approver.requests().len(), 1);
    let row = fixture.rows().pop().expect("a row");
    assert_eq!(row.approval.as_deref(), Some("approved_with_changes"));
}

#[tokio::test]
async fn an_approver_that_keeps_changing_arguments_is_stopped() {
    let fixture = fixture();
    let spy = spy();
    let calls = spy.calls();
    let registry = native_registry(&fixture, [spy]);
    let approver = ScriptedApprover::new(|number, _| ApprovalAnswer::ApproveWith {
        arguments: format!("{{\"path\":\"/shared/{number}\"}}"),
    });
    let error = run(&registry, &caller_asking(approver.clone())).await.into_result().expect_err("given up");
    assert_eq!(error.kind(), Denied);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert!(approver.requests().len() < 20);
    assert_eq!(fixture.rows().len(), 1);
}

/// Approves after it has replaced the file in question by a link to a file outside.
struct LinkSwappingApprover {
    file: PathBuf,
    outside: PathBuf,
}

#[async_trait]
impl Approver for LinkSwappingApprover {
    async fn decide(&self, _request: &ApprovalRequest) -> AttributedAnswer {
        fs::remove_file(&self.file).expect("the file can be removed");
        symlink(&self.outside, &self.file).expect("a link");
        ApprovalAnswer::Approve.into()
    }
}

#[tokio::test]
async fn approved_call_is_judged_again_before_it_runs() {
    let fixture =
        Fixture::new().with_policy_edit("[tools.file_read]", "[tools.file_read]\napproval = \"ask\"\n#");
    fixture.put("a.txt", "inside");
    let outside = fixture.root().join("outside");
    fs::write(&outside, "outside").expect("writable");
    let registry = fixture.registry().await;
    let approver = LinkSwappingApprover { file: fixture.shared("a.txt"), outside };
    let call = raw_call("file_read", r#"{"path":"a.txt"}"#);
    let result = registry.execute_with_policy(call, &caller_asking(approver)).await;
    assert_eq!(result.into_result().expect_err("refused").code(), "link_escapes_mount");
    let rows = fixture.rows();
    assert_eq!(rows.len(), 1);
    // The sandbox would have refused the guest too, but the guest was not even started.
    assert_eq!(rows[0].posture, None, "{rows:?}");
}
