//! The context that rows keep for later investigations: the process and its policy, the approver and the
//! question, and what a call touched beyond its arguments.

use std::fs;

use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::{
    ToolRegistry,
    audit::{ApproverKind, POLICIES_DIR, Row, RowEvent, TouchedMount},
    new_call,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{modules::portcullis, support::caller};

fn counts(mount: &str, [read, written, created, removed]: [u64; 4]) -> TouchedMount {
    TouchedMount { mount: mount.into(), read, written, created, removed }
}

async fn run(registry: &ToolRegistry, tool: &str, arguments: Value) {
    CallOutcome::run(registry, tool, arguments).await.0.into_result().expect("runs");
}

fn end_of(fixture: &Fixture, tool: &str) -> Row {
    let is_end = |row: &Row| &*row.tool == tool && row.event == RowEvent::End;
    fixture.rows().into_iter().rfind(is_end).expect("an end")
}

#[tokio::test]
async fn all_rows_lie_between_the_start_and_stop_of_their_process() {
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    assert!(fixture.all_rows().is_empty(), "a process that calls nothing records nothing");
    CallOutcome::run(&registry, "file_list", json!({})).await.0.into_result().expect("lists");
    let digest = registry.policy().digest().as_str().to_owned();
    drop(registry);
    let rows = fixture.all_rows();
    let events: Vec<RowEvent> = rows.iter().map(|row| row.event).collect();
    assert_eq!(events, [RowEvent::Start, RowEvent::End, RowEvent::Stop]);
    let start = &rows[0];
    assert_eq!(start.policy_digest.as_deref(), Some(&*digest));
    assert_eq!(start.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(start.uid, Some(rustix::process::getuid().as_raw()));
    let program = fs::read("/proc/self/exe").expect("readable");
    assert_eq!(start.binary_sha256.as_deref(), Some(&*hex::encode(Sha256::digest(program))));
    assert!(start.host.is_some() && start.lock_sha256.is_none());
    // The kept policy matches its digest, and the policy file has the same meaning.
    let policies = fixture.state().join(POLICIES_DIR);
    let json = fs::read(policies.join(format!("{digest}.json"))).expect("the file is readable");
    assert_eq!(hex::encode(Sha256::digest(json)), digest);
    let file = policies.join(format!("{digest}.toml"));
    let checked = portcullis(&fixture, &["policy", "check", &file.to_string_lossy()]);
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn a_changed_policy_and_a_refused_one_have_a_row() {
    let mut fixture = Fixture::new();
    let call = |fixture: &Fixture| portcullis(fixture, &["call", "file_list", "{}"]).status.code();
    assert_eq!(call(&fixture), Some(0));
    fixture = fixture.with_policy("[tools.file_delete]\nenabled = false\n");
    assert_eq!(call(&fixture), Some(0));
    fixture = fixture.with_policy_edit("\nenabled = false\n", "\nenable = false\n");
    assert_eq!(call(&fixture), Some(2));
    fixture = fixture.with_policy_edit("\nenable = false\n", "\nenabled = false\n");
    let rows = fixture.all_rows();
    let changes: Vec<&Row> = rows.iter().filter(|row| row.event == RowEvent::Policy).collect();
    let starts: Vec<&Row> = rows.iter().filter(|row| row.event == RowEvent::Start).collect();
    assert_eq!((changes.len(), starts.len()), (2, 3));
    assert_eq!(changes[0].old_digest, starts[0].policy_digest);
    assert_eq!(changes[0].new_digest, starts[1].policy_digest);
    assert_ne!(changes[0].old_digest, changes[0].new_digest);
    let reason = changes[1].refused.as_deref().expect("refused");
    assert!(reason.contains("enable") && changes[1].new_digest.is_none(), "{reason}");
    let listed = portcullis(&fixture, &["audit", "log", "--event", "policy"]);
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.contains("refused: ") && text.lines().count() == 3, "{text}");
}

#[tokio::test]
async fn a_row_says_who_approved_and_by_which_rule() {
    let fixture = Fixture::new().with_policy("[tools.file_delete]\napproval = \"ask\"\n");
    fixture.put("a", "");
    fixture.put("b", "");
    let registry = fixture.registry().await;
    let call = new_call("file_delete", json!({"path": "a"}).to_string());
    registry.execute_with_policy(call, &approving_caller()).await.into_result().expect("deleted");
    let row = end_of(&fixture, "file_delete");
    let approver = row.approver.expect("approved");
    assert_eq!((approver.by, approver.name), (ApproverKind::Flag, None));
    assert_eq!(approver.uid, Some(rustix::process::getuid().as_raw()));
    assert_eq!(approver.rule.as_deref(), Some("tools.file_delete.approval"));
    // No question was shown, so none is kept.
    assert_eq!(approver.question_sha256, None);
    let call = new_call("file_delete", json!({"path": "b"}).to_string());
    registry.execute_with_policy(call, &caller()).await.into_result().expect_err("nobody to ask");
    assert_eq!(end_of(&fixture, "file_delete").approver, None);
}

#[tokio::test]
async fn a_row_says_what_a_guest_did_in_each_mount() {
    let fixture = Fixture::new();
    for name in ["d/a.txt", "d/b.txt", "d/c.txt"] {
        fixture.put(name, "needle");
    }
    let registry = fixture.registry().await;
    run(&registry, "file_search", json!({"query": "needle", "path": "d"})).await;
    let row = end_of(&fixture, "file_search");
    let touched = row.touched.expect("observed");
    assert_eq!(touched.len(), 1, "{touched:?}");
    assert!(touched[0].read >= 3 && touched[0].written + touched[0].created + touched[0].removed == 0);
    for name in ["/shared/d/a.txt", "/shared/d/b.txt", "/shared/d/c.txt"] {
        assert!(row.touched_paths.iter().any(|path| &**path == name), "{:?}", row.touched_paths);
    }
    assert!(row.touched_paths.iter().all(|path| &**path != "/shared/d"), "the argument is a subject already");

    run(&registry, "file_read", json!({"path": "d/a.txt"})).await;
    let row = end_of(&fixture, "file_read");
    assert_eq!(row.touched, Some(vec![counts("shared", [1, 0, 0, 0])]));
    assert!(row.touched_paths.is_empty(), "{:?}", row.touched_paths);

    run(&registry, "file_write", json!({"path": "/tmp/new/x", "content": "c"})).await;
    let touched = end_of(&fixture, "file_write").touched.expect("observed");
    let in_tmp = touched.iter().find(|touched| &*touched.mount == "tmp").expect("touched");
    assert!(in_tmp.created >= 2, "the folder and the file: {touched:?}");

    let call = new_call("file_delete", json!({"path": "d/a.txt"}).to_string());
    registry.execute_with_policy(call, &approving_caller()).await.into_result().expect("deleted");
    let touched = end_of(&fixture, "file_delete").touched.expect("observed");
    assert_eq!(touched.iter().map(|touched| touched.removed).sum::<u64>(), 1, "{touched:?}");

    // A denied call touched nothing, and a native tool is not observed.
    CallOutcome::run(&registry, "file_read", json!({"path": "../../x"}))
        .await
        .0
        .into_result()
        .expect_err("denied");
    assert_eq!(end_of(&fixture, "file_read").touched, None);
    CallOutcome::run(&registry, "get_current_time", json!({})).await.0.into_result().expect("the time");
    assert_eq!(end_of(&fixture, "get_current_time").touched, None);
}

#[tokio::test]
async fn at_most_thirty_two_paths_are_named_beyond_the_arguments() {
    let fixture = Fixture::new();
    for number in 0..100 {
        fixture.put(&format!("d/{number}.txt"), "needle");
    }
    let registry = fixture.registry().await;
    run(&registry, "file_search", json!({"query": "needle", "path": "d"})).await;
    let row = end_of(&fixture, "file_search");
    assert_eq!(row.touched_paths.len(), 32);
    assert!(row.touched.expect("observed")[0].read >= 100);
}
