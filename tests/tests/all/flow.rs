//! Flow rules: what a run has read decides about its later calls, through the whole pipeline.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use portcullis_testing::{CallOutcome, World, approving};
use portcullis_tools::{
    Caller, ToolRegistry,
    approval::{ApprovalAnswer, ApprovalRequest, Approver, SessionApprovals, question},
    new_call,
};
use portcullis_types::{ToolErrorKind, ToolEvent};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Approves, counts the questions, and keeps approvals for the session as a front end does.
#[derive(Default)]
struct Session {
    approvals: SessionApprovals,
    asked: AtomicUsize,
    asked_for_flow: AtomicUsize,
    has_named_the_call: AtomicBool,
}

#[async_trait]
impl Approver for Session {
    async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        if self.approvals.covers(request) {
            return ApprovalAnswer::Approve;
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        let text = question(request, 200);
        if text.contains("has read `vault`") {
            self.asked_for_flow.fetch_add(1, Ordering::Relaxed);
            self.has_named_the_call.fetch_or(text.contains("reads_the_vault"), Ordering::Relaxed);
        }
        self.approvals.keep(request);
        ApprovalAnswer::Approve
    }
}

fn run(id: &str, session: &Arc<Session>) -> Caller {
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

fn with_secret(world: World) -> World {
    fs::write(world.workspace().join("vault/key"), "secret").expect("writable");
    world
}

fn flow(after: &str, then: &str, approval: &str) -> String {
    format!("[[flow]]\nafter = [\"{after}\"]\nthen = [\"{then}\"]\napproval = \"{approval}\"\n")
}

#[tokio::test]
async fn a_command_after_the_vault_is_asked_about_each_time() {
    let world = with_secret(World::new().with_policy("[tools.shell_exec]\napproval = \"allow\"\n"));
    let registry = world.registry_with_shell().await;
    let session = Arc::new(Session::default());
    let (reader, other) = (run("reads", &session), run("does not", &session));
    let command = json!({ "command": "echo hi" });
    assert_eq!(call(&registry, &reader, "shell_exec", command.clone()).await.text(), "hi\n");
    assert_eq!(session.asked.load(Ordering::Relaxed), 0, "before the vault");
    assert!(read_vault(&registry, &reader).await.text().contains("secret"));
    for questions in 1..=2 {
        assert_eq!(call(&registry, &reader, "shell_exec", command.clone()).await.text(), "hi\n");
        assert_eq!(session.asked_for_flow.load(Ordering::Relaxed), questions);
    }
    assert!(session.has_named_the_call.load(Ordering::Relaxed));
    assert_eq!(call(&registry, &other, "shell_exec", command.clone()).await.text(), "hi\n");
    assert_eq!(session.asked.load(Ordering::Relaxed), 2, "another run is not asked about");

    let rows = world.rows();
    let of =
        |run: &str| rows.iter().filter(move |row| row.run_id.as_deref() == Some(run)).collect::<Vec<_>>();
    let last = of("reads").pop().expect("a row");
    assert!(last.labels.iter().any(|label| &**label == "vault"), "{last:?}");
    assert_eq!(last.flow_rule.as_deref(), Some("flow[vault -> shell]"));
    assert_eq!(last.approval.as_deref(), Some("approved"));
    let last = of("does not").pop().expect("a row");
    assert_eq!((last.labels.as_slice(), &last.flow_rule), (&[][..], &None));

    registry.end_run(&reader);
    assert_eq!(call(&registry, &reader, "shell_exec", command).await.text(), "hi\n");
    assert_eq!(session.asked.load(Ordering::Relaxed), 2, "a new run under the same id");
}

#[tokio::test]
async fn a_session_approval_does_not_cover_a_flow_question() {
    let ask = "[tools.file_write]\napproval = \"ask\"\n";
    let world =
        with_secret(World::new().with_policy(&format!("{ask}{}", flow("vault", "write:shared", "ask"))));
    let registry = world.registry().await;
    let session = Arc::new(Session::default());
    let caller = run("r", &session);
    let write = json!({ "path": "/shared/a", "content": "x" });
    for _ in 0..2 {
        let _written = call(&registry, &caller, "file_write", write.clone()).await.text();
    }
    assert_eq!(session.asked.load(Ordering::Relaxed), 1, "approved for the session");
    let _read = read_vault(&registry, &caller).await.text();
    for asked in 2..=3 {
        let _written = call(&registry, &caller, "file_write", write.clone()).await.text();
        assert_eq!(session.asked.load(Ordering::Relaxed), asked);
    }
}

#[tokio::test]
async fn a_rule_that_denies_stops_a_copy_before_it_begins() {
    let world = with_secret(World::new().with_policy(&flow("vault", "write:shared", "deny")));
    let registry = world.registry().await;
    let caller = run("r", &Arc::default());
    let copy = json!({ "source_path": "/vault/key", "destination_path": "/shared/key" });
    let answer = call(&registry, &caller, "vault_copyto", copy).await;
    answer.refused(ToolErrorKind::Denied, "flow_denied");
    assert!(!world.shared("key").exists());
    let rows = world.rows();
    assert_eq!(rows.len(), 1, "no step ran");
    assert_eq!(rows[0].flow_rule.as_deref(), Some("flow[vault -> write:shared]"));
    let _written =
        call(&registry, &caller, "file_write", json!({ "path": "/shared/a", "content": "x" })).await.text();
}

#[tokio::test]
async fn a_copy_and_a_listing_label_the_run_too() {
    let world = with_secret(World::new().with_policy(&flow("vault", "write:shared", "ask")));
    let registry = world.registry().await;
    for (id, tool, arguments) in [
        ("copies", "vault_copyto", json!({ "source_path": "/vault/key", "destination_path": "/tmp/key" })),
        ("lists", "file_list", json!({ "path": "/vault" })),
    ] {
        let session = Arc::new(Session::default());
        let caller = run(id, &session);
        let _any = call(&registry, &caller, tool, arguments).await;
        let before = session.asked_for_flow.load(Ordering::Relaxed);
        let write = json!({ "path": "/shared/a", "content": "x" });
        let _written = call(&registry, &caller, "file_write", write).await.text();
        assert_eq!(session.asked_for_flow.load(Ordering::Relaxed), before + 1, "{id}");
    }
}

#[tokio::test]
async fn a_label_of_a_mount_needs_its_use_and_not_its_grant() {
    let world = with_secret(World::new().with_policy(&flow("mount:tmp", "write:shared", "deny")));
    fs::write(world.workspace().join("tmp/a"), "a").expect("writable");
    world.put("a", "a");
    let registry = world.registry().await;
    let caller = run("r", &Arc::default());
    let write = json!({ "path": "/shared/b", "content": "x" });
    // `file_read` is granted `tmp` and `vault`, and touches neither.
    let _read = call(&registry, &caller, "file_read", json!({ "path": "/shared/a" })).await.text();
    let _written = call(&registry, &caller, "file_write", write.clone()).await.text();
    let _read = call(&registry, &caller, "file_read", json!({ "path": "/tmp/a" })).await.text();
    call(&registry, &caller, "file_write", write).await.refused(ToolErrorKind::Denied, "flow_denied");
}

/// A world whose guest `tells_early` reads the vault, and whose runs write nothing after that.
fn telling() -> World {
    let reader = "[tools.tells_early]\nprofile = \"FileReadOnly\"\ntimeout = \"30s\"\n";
    with_secret(World::new().with_policy(&format!("{reader}{}", flow("vault", "write:shared", "deny"))))
}

/// A caller, and what tells that a partial result has come.
fn watching() -> (Caller, Arc<Notify>) {
    let (mut caller, told) = (Caller::new("tester", "r"), Arc::new(Notify::new()));
    let tells = Arc::clone(&told);
    caller.on_update = Some(Arc::new(move |partial| {
        assert_eq!(partial.joined_text(), "secret");
        tells.notify_one();
    }));
    (caller, told)
}

/// A partial result leaves a call before its end, and another call may run beside it.
#[tokio::test]
async fn a_read_under_way_counts_before_it_ends() {
    let world = telling();
    let registry = world.registry_with(&["tells_early"]).await;
    let (reader, told) = watching();
    let write = json!({ "path": "/shared/a", "content": "secret" });
    let reading = call(&registry, &reader, "tells_early", json!({ "path": "/vault/key" }));
    let beside = async {
        told.notified().await;
        let answer = call(&registry, &run("r", &Arc::default()), "file_write", write.clone()).await;
        answer.refused(ToolErrorKind::Denied, "flow_denied");
        let _written =
            call(&registry, &run("other", &Arc::default()), "file_write", write.clone()).await.text();
        reader.cancel.cancel();
    };
    let (ended, ()) = tokio::join!(reading, beside);
    assert_eq!(ended.error().kind(), ToolErrorKind::Cancelled, "{ended:?}");
    call(&registry, &run("r", &Arc::default()), "file_write", write)
        .await
        .refused(ToolErrorKind::Denied, "flow_denied");
}

#[tokio::test]
async fn a_read_counts_whose_caller_has_left() {
    let world = telling();
    let registry = world.registry_with(&["tells_early"]).await;
    let (reader, told) = watching();
    tokio::select! {
        ended = call(&registry, &reader, "tells_early", json!({ "path": "/vault/key" })) => panic!("{ended:?}"),
        () = told.notified() => {}
    }
    let write = json!({ "path": "/shared/a", "content": "secret" });
    let answer = call(&registry, &run("r", &Arc::default()), "file_write", write).await;
    answer.refused(ToolErrorKind::Denied, "flow_denied");
}

/// A guest that only could read the vault labels nothing, whether it runs or has been dropped.
#[tokio::test]
async fn a_read_elsewhere_brings_no_label_of_the_vault() {
    let world = telling();
    world.put("key", "secret");
    let registry = world.registry_with(&["tells_early"]).await;
    let (reader, told) = watching();
    let write = json!({ "path": "/shared/a", "content": "x" });
    tokio::select! {
        ended = call(&registry, &reader, "tells_early", json!({ "path": "/shared/key" })) => panic!("{ended:?}"),
        () = async {
            told.notified().await;
            let _written =
                call(&registry, &run("r", &Arc::default()), "file_write", write.clone()).await.text();
        } => {}
    }
    let _written = call(&registry, &run("r", &Arc::default()), "file_write", write).await.text();
}

/// A call that waits for its mount is judged again when its turn comes.
#[tokio::test]
async fn a_call_that_waited_is_judged_by_what_was_read_meanwhile() {
    let holder = "[tools.loop_forever]\nprofile = \"FileReadWrite\"\ntimeout = \"30s\"\n";
    let rules = format!("{holder}{}", flow("vault", "write:shared", "deny"));
    let world = with_secret(World::new().with_policy(&rules));
    let registry = world.registry_with(&["loop_forever"]).await;
    let (holder, has_begun) = listening_for(|event| matches!(event, ToolEvent::Started { .. }));
    let (writer, has_asked) = listening_for(|event| matches!(event, ToolEvent::Requested { .. }));
    let writing = async {
        has_begun.notified().await;
        call(&registry, &writer, "file_write", json!({ "path": "/shared/a", "content": "secret" })).await
    };
    let meanwhile = async {
        has_asked.notified().await;
        // The writer has nothing to wait for but its mount.
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        assert!(read_vault(&registry, &writer).await.text().contains("secret"));
        holder.cancel.cancel();
    };
    let held = call(&registry, &holder, "loop_forever", json!({}));
    let (held, written, ()) = tokio::join!(held, writing, meanwhile);
    assert_eq!(held.error().kind(), ToolErrorKind::Cancelled, "{held:?}");
    written.refused(ToolErrorKind::Denied, "flow_denied");
    assert!(!world.shared("a").exists());
    let row = world.rows().into_iter().find(|row| &*row.tool == "file_write").expect("a row");
    assert_eq!(row.flow_rule.as_deref(), Some("flow[vault -> write:shared]"));
}

#[tokio::test]
async fn an_operation_that_waited_is_judged_by_what_was_read_meanwhile() {
    let world = with_secret(
        World::new()
            .with_policy("[tools.loop_forever]\nprofile = \"Nothing\"\ntimeout = \"30s\"\n")
            .with_policy_edit("concurrency = 10", "concurrency = 1")
            .with_policy_edit("approval = \"deny\"                  # or", "approval = \"ask\" # or"),
    );
    let registry = world.registry_with(&["loop_forever"]).await;
    // It shares the labels of runs, and has slots of its own.
    let other = world.registry_with(&["loop_forever"]).await;
    other.continue_runs_of(&registry);
    let (holder, has_begun) = listening_for(|event| matches!(event, ToolEvent::Started { .. }));
    let (fetcher, has_asked) = listening_for(|event| matches!(event, ToolEvent::ApprovalResolved { .. }));
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
    let held = call(&registry, &holder, "loop_forever", json!({}));
    let (_held, fetched, ()) = tokio::join!(held, fetching, meanwhile);
    fetched.refused(ToolErrorKind::Denied, "flow_denied");
    let row = world.rows().into_iter().find(|row| &*row.tool == "web_fetch").expect("a row");
    assert_eq!(row.flow_rule.as_deref(), Some("flow[vault -> network]"));
}

#[tokio::test]
async fn a_name_that_is_missing_in_the_vault_brings_its_label() {
    let world = with_secret(World::new());
    let registry = world.registry_with(&[]).await;
    let caller = approving();
    let missing = call(&registry, &caller, "file_read", json!({ "path": "/vault/guess" })).await;
    assert_eq!(missing.error().kind(), ToolErrorKind::NotFound);
    let fetched = call(&registry, &caller, "web_fetch", json!({ "url": "https://example.com/" })).await;
    fetched.refused(ToolErrorKind::Denied, "flow_denied");
}

/// An approving caller, and what tells of such an event.
fn listening_for(event: fn(&ToolEvent) -> bool) -> (Caller, Arc<Notify>) {
    let (mut caller, told) = (approving(), Arc::new(Notify::new()));
    let tells = Arc::clone(&told);
    caller.on_event = Some(Arc::new(move |found| {
        if event(found) {
            tells.notify_one();
        }
    }));
    (caller, told)
}
