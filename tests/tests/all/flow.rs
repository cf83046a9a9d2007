//! Flow rules through the whole pipeline: the data that a run has read restricts its later calls.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::{
    Caller, ToolRegistry,
    approval::{ApprovalAnswer, ApprovalRequest, Approver, AttributedAnswer, SessionApprovals, question},
    new_call,
};
use portcullis_types::{ToolErrorKind, ToolEvent};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Approves, counts the questions, and remembers approvals for the session as a front end does.
#[derive(Default)]
struct SessionApprover {
    approvals: SessionApprovals,
    question_count: AtomicUsize,
    flow_question_count: AtomicUsize,
    has_named_the_call: AtomicBool,
}

#[async_trait]
impl Approver for SessionApprover {
    async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
        if self.approvals.covers(request) {
            return ApprovalAnswer::Approve.into();
        }
        self.question_count.fetch_add(1, Ordering::Relaxed);
        let text = question(request, 200);
        if text.contains("has read `vault`") {
            self.flow_question_count.fetch_add(1, Ordering::Relaxed);
            self.has_named_the_call.fetch_or(text.contains("reads_the_vault"), Ordering::Relaxed);
        }
        self.approvals.keep(request);
        ApprovalAnswer::Approve.into()
    }
}

fn caller_of_run(id: &str, session: &Arc<SessionApprover>) -> Caller {
    let mut caller = Caller::new("tester", id);
    caller.approver = Some(Arc::clone(session) as Arc<dyn Approver>);
    caller
}

async fn call(registry: &ToolRegistry, caller: &Caller, tool: &str, arguments: Value) -> CallOutcome {
    CallOutcome(registry.execute_with_policy(new_call(tool, arguments.to_string()), caller).await)
}

async fn read_vault(registry: &ToolRegistry, caller: &Caller) -> CallOutcome {
    let mut read = new_call("file_read", json!({ "path": "/vault/key" }).to_string());
    "reads_the_vault".clone_into(&mut read.id);
    CallOutcome(registry.execute_with_policy(read, caller).await)
}

fn add_secret(fixture: Fixture) -> Fixture {
    fs::write(fixture.workspace().join("vault/key"), "secret").expect("writable");
    fixture
}

fn flow_rule(after: &str, then: &str, approval: &str) -> String {
    format!("[[flow]]\nafter = [\"{after}\"]\nthen = [\"{then}\"]\napproval = \"{approval}\"\n")
}

#[tokio::test]
async fn a_command_after_the_vault_is_asked_about_each_time() {
    let fixture = add_secret(Fixture::new().with_policy("[tools.shell_exec]\napproval = \"allow\"\n"));
    let registry = fixture.registry_with_shell().await;
    let session = Arc::new(SessionApprover::default());
    let (reader, other) = (caller_of_run("reads", &session), caller_of_run("does not", &session));
    let command = json!({ "command": "echo hi" });
    assert_eq!(call(&registry, &reader, "shell_exec", command.clone()).await.text(), "hi\n");
    assert_eq!(session.question_count.load(Ordering::Relaxed), 0, "before the vault");
    assert!(read_vault(&registry, &reader).await.text().contains("secret"));
    for questions in 1..=2 {
        assert_eq!(call(&registry, &reader, "shell_exec", command.clone()).await.text(), "hi\n");
        assert_eq!(session.flow_question_count.load(Ordering::Relaxed), questions);
    }
    assert!(session.has_named_the_call.load(Ordering::Relaxed));
    assert_eq!(call(&registry, &other, "shell_exec", command.clone()).await.text(), "hi\n");
    assert_eq!(session.question_count.load(Ordering::Relaxed), 2, "another run is not asked about");

    let rows = fixture.rows();
    let rows_of_run =
        |run: &str| rows.iter().filter(move |row| row.run_id.as_deref() == Some(run)).collect::<Vec<_>>();
    let last = rows_of_run("reads").pop().expect("a row");
    assert!(last.labels.iter().any(|label| &**label == "vault"), "{last:?}");
    assert_eq!(last.flow_rule.as_deref(), Some("flow[vault -> shell]"));
    assert_eq!(last.approval.as_deref(), Some("approved"));
    let last = rows_of_run("does not").pop().expect("a row");
    assert_eq!((last.labels.as_slice(), &last.flow_rule), (&[][..], &None));

    registry.end_run(&reader);
    assert_eq!(call(&registry, &reader, "shell_exec", command).await.text(), "hi\n");
    assert_eq!(session.question_count.load(Ordering::Relaxed), 2, "a new run under the same id");
}

#[tokio::test]
async fn a_session_approval_does_not_cover_a_flow_question() {
    let ask = "[tools.file_write]\napproval = \"ask\"\n";
    let fixture = add_secret(
        Fixture::new().with_policy(&format!("{ask}{}", flow_rule("vault", "write:shared", "ask"))),
    );
    let registry = fixture.registry().await;
    let session = Arc::new(SessionApprover::default());
    let caller = caller_of_run("r", &session);
    let write = json!({ "path": "/shared/a", "content": "x" });
    for _ in 0..2 {
        let _written = call(&registry, &caller, "file_write", write.clone()).await.text();
    }
    assert_eq!(session.question_count.load(Ordering::Relaxed), 1, "approved for the session");
    let _read = read_vault(&registry, &caller).await.text();
    for expected_count in 2..=3 {
        let _written = call(&registry, &caller, "file_write", write.clone()).await.text();
        assert_eq!(session.question_count.load(Ordering::Relaxed), expected_count);
    }
}

#[tokio::test]
async fn a_rule_that_denies_stops_a_copy_before_it_begins() {
    let fixture = add_secret(Fixture::new().with_policy(&flow_rule("vault", "write:shared", "deny")));
    let registry = fixture.registry().await;
    let caller = caller_of_run("r", &Arc::default());
    let copy = json!({ "source_path": "/vault/key", "destination_path": "/shared/key" });
    let answer = call(&registry, &caller, "vault_copyto", copy).await;
    answer.assert_refused(ToolErrorKind::Denied, "flow_denied");
    assert!(!fixture.shared("key").exists());
    let rows = fixture.rows();
    assert_eq!(rows.len(), 1, "no step ran");
    assert_eq!(rows[0].flow_rule.as_deref(), Some("flow[vault -> write:shared]"));
    let _written =
        call(&registry, &caller, "file_write", json!({ "path": "/shared/a", "content": "x" })).await.text();
}

#[tokio::test]
async fn a_copy_and_a_listing_label_the_run_too() {
    let fixture = add_secret(Fixture::new().with_policy(&flow_rule("vault", "write:shared", "ask")));
    let registry = fixture.registry().await;
    for (id, tool, arguments) in [
        ("copies", "vault_copyto", json!({ "source_path": "/vault/key", "destination_path": "/tmp/key" })),
        ("lists", "file_list", json!({ "path": "/vault" })),
    ] {
        let session = Arc::new(SessionApprover::default());
        let caller = caller_of_run(id, &session);
        let _any = call(&registry, &caller, tool, arguments).await;
        let before = session.flow_question_count.load(Ordering::Relaxed);
        let write = json!({ "path": "/shared/a", "content": "x" });
        let _written = call(&registry, &caller, "file_write", write).await.text();
        assert_eq!(session.flow_question_count.load(Ordering::Relaxed), before + 1, "{id}");
    }
}

#[tokio::test]
async fn a_label_of_a_mount_needs_its_use_and_not_its_grant() {
    let fixture = add_secret(Fixture::new().with_policy(&flow_rule("mount:tmp", "write:shared", "deny")));
    fs::write(fixture.workspace().join("tmp/a"), "a").expect("writable");
    fixture.put("a", "a");
    let registry = fixture.registry().await;
    let caller = caller_of_run("r", &Arc::default());
    let write = json!({ "path": "/shared/b", "content": "x" });
    // `file_read` has grants for `tmp` and `vault`, and touches neither of them.
    let _read = call(&registry, &caller, "file_read", json!({ "path": "/shared/a" })).await.text();
    let _written = call(&registry, &caller, "file_write", write.clone()).await.text();
    let _read = call(&registry, &caller, "file_read", json!({ "path": "/tmp/a" })).await.text();
    call(&registry, &caller, "file_write", write).await.assert_refused(ToolErrorKind::Denied, "flow_denied");
}

/// Creates a fixture whose guest `tells_early` may read the vault; after the vault, a run may not write
/// `shared`.
fn fixture_telling_early() -> Fixture {
    let reader = "[tools.tells_early]\nprofile = \"FileReadOnly\"\ntimeout = \"30s\"\n";
    add_secret(Fixture::new().with_policy(&format!("{reader}{}", flow_rule("vault", "write:shared", "deny"))))
}

/// Creates a caller, and a notification of its first partial result.
fn caller_watching_updates() -> (Caller, Arc<Notify>) {
    let (mut caller, notification) = (Caller::new("tester", "r"), Arc::new(Notify::new()));
    let notifier = Arc::clone(&notification);
    caller.on_update = Some(Arc::new(move |partial| {
        assert_eq!(partial.joined_text(), "secret");
        notifier.notify_one();
    }));
    (caller, notification)
}

/// A partial result leaves a call before the call ends, and another call may run beside it.
#[tokio::test]
async fn a_read_under_way_counts_before_it_ends() {
    let fixture = fixture_telling_early();
    let registry = fixture.registry_with(&["tells_early"]).await;
    let (reader, partial_came) = caller_watching_updates();
    let write = json!({ "path": "/shared/a", "content": "secret" });
    let reading = call(&registry, &reader, "tells_early", json!({ "path": "/vault/key" }));
    let second_call = async {
        partial_came.notified().await;
        let answer = call(&registry, &caller_of_run("r", &Arc::default()), "file_write", write.clone()).await;
        answer.assert_refused(ToolErrorKind::Denied, "flow_denied");
        let _written = call(&registry, &caller_of_run("other", &Arc::default()), "file_write", write.clone())
            .await
            .text();
        reader.cancel.cancel();
    };
    let (ended, ()) = tokio::join!(reading, second_call);
    assert_eq!(ended.error().kind(), ToolErrorKind::Cancelled, "{ended:?}");
    call(&registry, &caller_of_run("r", &Arc::default()), "file_write", write)
        .await
        .assert_refused(ToolErrorKind::Denied, "flow_denied");
}

#[tokio::test]
async fn a_read_counts_whose_caller_has_left() {
    let fixture = fixture_telling_early();
    let registry = fixture.registry_with(&["tells_early"]).await;
    let (reader, partial_came) = caller_watching_updates();
    tokio::select! {
        ended = call(&registry, &reader, "tells_early", json!({ "path": "/vault/key" })) => panic!("{ended:?}"),
        () = partial_came.notified() => {}
    }
    let write = json!({ "path": "/shared/a", "content": "secret" });
    let answer = call(&registry, &caller_of_run("r", &Arc::default()), "file_write", write).await;
    answer.assert_refused(ToolErrorKind::Denied, "flow_denied");
}

/// A guest that may read the vault but does not read it adds no label to the run, even while it runs or after
/// a drop.
#[tokio::test]
async fn a_guest_that_does_not_read_the_vault_adds_no_label() {
    let fixture = fixture_telling_early();
    fixture.put("key", "secret");
    let registry = fixture.registry_with(&["tells_early"]).await;
    let (reader, partial_came) = caller_watching_updates();
    let write = json!({ "path": "/shared/a", "content": "x" });
    tokio::select! {
        ended = call(&registry, &reader, "tells_early", json!({ "path": "/shared/key" })) => panic!("{ended:?}"),
        () = async {
            partial_came.notified().await;
            let _written =
                call(&registry, &caller_of_run("r", &Arc::default()), "file_write", write.clone()).await.text();
        } => {}
    }
    let _written = call(&registry, &caller_of_run("r", &Arc::default()), "file_write", write).await.text();
}

/// A call that waits for its mount is checked again when it gets the mount.
#[tokio::test]
async fn a_waiting_call_is_judged_again_after_a_vault_read() {
    let holder = "[tools.loop_forever]\nprofile = \"FileReadWrite\"\ntimeout = \"30s\"\n";
    let rules = format!("{holder}{}", flow_rule("vault", "write:shared", "deny"));
    let fixture = add_secret(Fixture::new().with_policy(&rules));
    let registry = fixture.registry_with(&["loop_forever"]).await;
    let (holder, has_begun) = caller_listening_for(|event| matches!(event, ToolEvent::Started { .. }));
    let (writer, has_asked) = caller_listening_for(|event| matches!(event, ToolEvent::Requested { .. }));
    let writing = async {
        has_begun.notified().await;
        call(&registry, &writer, "file_write", json!({ "path": "/shared/a", "content": "secret" })).await
    };
    let meanwhile = async {
        has_asked.notified().await;
        // The writer waits only for its mount, so after these yields it is waiting there.
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        assert!(read_vault(&registry, &writer).await.text().contains("secret"));
        holder.cancel.cancel();
    };
    let held_call = call(&registry, &holder, "loop_forever", json!({}));
    let (held_call, written, ()) = tokio::join!(held_call, writing, meanwhile);
    assert_eq!(held_call.error().kind(), ToolErrorKind::Cancelled, "{held_call:?}");
    written.assert_refused(ToolErrorKind::Denied, "flow_denied");
    assert!(!fixture.shared("a").exists());
    let row = fixture.rows().into_iter().find(|row| &*row.tool == "file_write").expect("a row");
    assert_eq!(row.flow_rule.as_deref(), Some("flow[vault -> write:shared]"));
}

#[tokio::test]
async fn a_waiting_operation_is_judged_again_after_a_vault_read() {
    let fixture = add_secret(
        Fixture::new()
            .with_policy("[tools.loop_forever]\nprofile = \"Nothing\"\ntimeout = \"30s\"\n")
            .with_policy_edit("concurrency = 10", "concurrency = 1")
            .with_policy_edit("approval = \"deny\"                  # or", "approval = \"ask\" # or"),
    );
    let registry = fixture.registry_with(&["loop_forever"]).await;
    // The second registry shares the labels of runs, but has its own slots.
    let other = fixture.registry_with(&["loop_forever"]).await;
    other.continue_runs_of(&registry);
    let (holder, has_begun) = caller_listening_for(|event| matches!(event, ToolEvent::Started { .. }));
    let (fetcher, has_asked) =
        caller_listening_for(|event| matches!(event, ToolEvent::ApprovalResolved { .. }));
    let fetching = async {
        has_begun.notified().await;
        call(&registry, &fetcher, "web_fetch", json!({ "url": "https://example.com/" })).await
    };
    let meanwhile = async {
        has_asked.notified().await;
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        assert!(read_vault(&other, &fetcher).await.text().contains("secret"));
        holder.cancel.cancel();
    };
    let held_call = call(&registry, &holder, "loop_forever", json!({}));
    let (_held, fetched, ()) = tokio::join!(held_call, fetching, meanwhile);
    fetched.assert_refused(ToolErrorKind::Denied, "flow_denied");
    let row = fixture.rows().into_iter().find(|row| &*row.tool == "web_fetch").expect("a row");
    assert_eq!(row.flow_rule.as_deref(), Some("flow[vault -> network]"));
}

#[tokio::test]
async fn a_name_that_is_missing_in_the_vault_brings_its_label() {
    let fixture = add_secret(Fixture::new());
    let registry = fixture.registry_with(&[]).await;
    let caller = approving_caller();
    let missing = call(&registry, &caller, "file_read", json!({ "path": "/vault/guess" })).await;
    assert_eq!(missing.error().kind(), ToolErrorKind::NotFound);
    let fetched = call(&registry, &caller, "web_fetch", json!({ "url": "https://example.com/" })).await;
    fetched.assert_refused(ToolErrorKind::Denied, "flow_denied");
}

/// Creates an approving caller, and a notification for the first event of this kind.
fn caller_listening_for(is_wanted: fn(&ToolEvent) -> bool) -> (Caller, Arc<Notify>) {
    let (mut caller, notification) = (approving_caller(), Arc::new(Notify::new()));
    let notifier = Arc::clone(&notification);
    caller.on_event = Some(Arc::new(move |event| {
        if is_wanted(event) {
            notifier.notify_one();
        }
    }));
    (caller, notification)
}
