//! The audit rows of calls: their content, the data that they never hold, and that a row is written before its call has
//! an effect.

mod bundled;
mod listing;
mod processes;
mod report;
mod row_context;
mod sealed;
mod unwritable;
mod witnessed;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use futures_util::future::join_all;
use portcullis_testing::{CallOutcome, Fixture, approving_caller, kernel_or_skip};
use portcullis_tools::{
    Caller, ToolCall,
    audit::{self, ApproverKind, Confinement, Decision, Outcome, Row, RowEvent, SubjectKind},
    confine::{Layer, probe_kernel},
};
use portcullis_types::{Access, SafetyTier, ToolErrorKind, ToolOutput};
use serde_json::{Value, json};

use crate::support::{Spy, assert_nowhere_below, caller, fixture_enabling, native_registry, raw_call};

/// SHA-256 of `{"path":"/shared/a.txt"}`, as printed by `sha256sum`.
const ARGS_SHA256: &str = "cd8762edbd570c42adfebae2d3cd141d3fe783aed48196ee04dfe741a629332a";

fn mounts(row: &Row) -> Vec<(&str, Access)> {
    row.mounts.iter().map(|mount| (&*mount.name, mount.access)).collect()
}

#[tokio::test]
async fn the_row_of_a_read_has_caller_subject_grant_and_cost() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "content");
    let registry = fixture.registry().await;
    let mut caller = Caller::new("the agent", "the run");
    caller.operation_id = Some("the operation".to_owned());
    let call = raw_call("file_read", r#"{"path":"/shared/a.txt"}"#);
    let id = call.id.clone();
    registry.execute_with_policy(call, &caller).await.into_result().expect("reads");
    let rows = fixture.rows();
    assert_eq!(rows.len(), 1, "a call without effects has one row");
    let row = &rows[0];
    assert_eq!((row.seq, row.event, row.outcome), (2, RowEvent::End, Some(Outcome::Ok)));
    assert_eq!(*row.call_id, *id);
    assert_eq!(row.agent.as_deref(), Some("the agent"));
    assert_eq!(row.run_id.as_deref(), Some("the run"));
    assert_eq!(row.operation_id.as_deref(), Some("the operation"));
    assert_eq!((&*row.tool, row.tier), ("file_read", Some(SafetyTier::ReadOnly)));
    assert_eq!(row.confinement, Some(Confinement::Wasm));
    assert_eq!(row.profile.as_deref(), Some("FileReadOnly"));
    assert_eq!(mounts(row), [("shared", Access::Read), ("tmp", Access::Read), ("vault", Access::Read)]);
    let subjects: Vec<_> =
        row.subjects.iter().map(|subject| (subject.source.as_str(), subject.kind, &*subject.value)).collect();
    assert_eq!(subjects, [("path", SubjectKind::Path, "/shared/a.txt")]);
    assert_eq!(row.args_sha256.as_deref(), Some(ARGS_SHA256));
    assert_eq!(row.policy_digest.as_deref(), Some(registry.policy().digest().as_str()));
    assert!(row.module_sha256.as_deref().is_some_and(|hash| hash.len() == 64), "{:?}", row.module_sha256);
    assert_eq!((row.decision, row.code.as_deref()), (Some(Decision::Allow), None));
    assert_eq!(row.rule.as_deref(), Some("profiles.FileReadOnly"));
    assert_eq!(row.approval.as_deref(), Some("not_required"));
    assert_eq!((row.bytes_out, row.truncated, row.omitted), (Some(7), Some(false), 0));
    assert!(row.duration_us.is_some() && row.cpu_us.is_some());
    assert!(row.peak_memory.is_some_and(|bytes| bytes >= 64 << 10), "{:?}", row.peak_memory);
    assert_eq!(row.mounts_used.iter().map(|name| &**name).collect::<Vec<_>>(), ["shared"]);
    let kernel = probe_kernel();
    for layer in [Layer::Landlock, Layer::Seccomp] {
        if kernel_or_skip(layer.as_str(), kernel.missing(layer).is_none()) {
            let posture = row.posture.as_deref().unwrap_or_default();
            let is_in_force = posture.split(',').any(|part| {
                part.starts_with(&format!("{layer}=enforced"))
                    || part.starts_with(&format!("{layer}=partial"))
            });
            assert!(is_in_force, "{layer}: {posture}");
        }
    }
}

#[tokio::test]
async fn a_call_with_effects_has_a_begin_with_its_grant_and_an_end() {
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    CallOutcome::run(&registry, "file_write", json!({"path": "/tmp/x", "content": "c"}))
        .await
        .0
        .into_result()
        .expect("writes");
    let rows = fixture.rows();
    assert_eq!(
        rows.iter().map(|row| (row.event, row.outcome)).collect::<Vec<_>>(),
        [(RowEvent::Begin, None), (RowEvent::End, Some(Outcome::Ok)),]
    );
    for row in &rows {
        assert_eq!(row.call_id, rows[0].call_id);
        assert_eq!(mounts(row), [("shared", Access::Write), ("tmp", Access::Write)]);
        assert_eq!(&*row.subjects[0].value, "/tmp/x");
        assert_eq!(
            (row.tier, row.profile.as_deref()),
            (Some(SafetyTier::SideEffecting), Some("FileReadWrite"))
        );
        assert_eq!((row.decision, row.approval.as_deref()), (Some(Decision::Allow), Some("not_required")));
        assert!(row.args_sha256.is_some() && row.module_sha256.is_some() && row.policy_digest.is_some());
    }
    assert_eq!(rows[0].duration_us, None);
    assert!(rows[0].mounts_used.is_empty());
    assert_eq!(rows[1].mounts_used.iter().map(|name| &**name).collect::<Vec<_>>(), ["tmp"]);
}

#[tokio::test]
async fn the_begin_is_on_record_when_the_tool_starts() {
    let fixture = fixture_enabling(&["spy"]);
    let log = audit::log_path(&fixture.state());
    let spy = Spy::new("spy", move |ctx, _| {
        let rows: Vec<Row> = audit::rows(&log).map(|row| row.expect("a row")).collect();
        let has_begin = rows.iter().any(|row| *row.call_id == *ctx.call_id && row.event == RowEvent::Begin);
        async move { Ok(ToolOutput::text(has_begin.to_string())) }
    });
    let registry = native_registry(&fixture, [spy.tier(SafetyTier::SideEffecting)]);
    let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await;
    assert_eq!(result.into_result().expect("runs").joined_text(), "true");
}

#[tokio::test]
async fn a_native_row_is_marked_and_has_no_module_mounts_or_posture() {
    let fixture = Fixture::new();
    let registry = native_registry(&fixture, []);
    registry
        .execute_with_policy(raw_call("echo", r#"{"message":"m"}"#), &caller())
        .await
        .into_result()
        .expect("runs");
    let row = fixture.rows().pop().expect("a row");
    assert_eq!(row.confinement, Some(Confinement::Native));
    assert_eq!(row.confinement.map(Confinement::as_str), Some("native, unconfined"));
    assert_eq!((row.module_sha256, row.posture, row.mounts.len()), (None, None, 0));
    assert_eq!(row.profile.as_deref(), Some("Nothing"));
}

#[tokio::test]
async fn refused_and_failed_calls_have_their_row_with_the_reason() {
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    for (tool, arguments, code, rule, subject) in [
        ("nobody", json!({}), "unknown_tool", None, None),
        ("file_read", json!({}), "invalid_arguments", None, None),
        ("file_read", json!({"path": "/etc/passwd"}), "unknown_mount", Some("mounts"), Some("/etc/passwd")),
        (
            "file_write",
            json!({"path": "/vault/x", "content": ""}),
            "mount_not_granted",
            Some("profiles.FileReadWrite.mounts.vault"),
            Some("/vault/x"),
        ),
        (
            "file_write",
            json!({"path": "a/.ENVRC", "content": ""}),
            "protected_path",
            Some("protect.paths[\".envrc\"]"),
            Some("/shared/a/.ENVRC"),
        ),
        (
            "file_read",
            json!({"path": "none"}),
            "not_found",
            Some("profiles.FileReadOnly"),
            Some("/shared/none"),
        ),
        ("failing_tool", json!({}), "failed", Some("profiles.Nothing"), None),
    ] {
        let before = fixture.rows().len();
        let error = CallOutcome::run(&registry, tool, arguments).await.0.into_result().expect_err("refused");
        let row = &fixture.rows()[before..];
        assert_eq!(row.len(), 1, "{tool}: {row:#?}");
        assert_eq!(row[0].outcome, Some(Outcome::Error(error.kind())), "{tool}");
        assert_eq!((row[0].code.as_deref(), row[0].rule.as_deref()), (Some(code), rule), "{tool}");
        assert_eq!(row[0].subjects.first().map(|subject| &*subject.value), subject, "{tool}");
        let denied = error.kind() == ToolErrorKind::Denied;
        assert_eq!(row[0].decision == Some(Decision::Deny), denied, "{tool}");
    }
}

#[tokio::test]
async fn no_row_and_no_file_of_the_state_folder_holds_contents() {
    const PLANTED: &str = "planted-content-4711";
    let fixture = Fixture::new();
    fixture.put("a.txt", format!("{PLANTED}\n"));
    fixture.put("bad.txt", format!("{PLANTED}\n").replace('\n', "\u{0}"));
    let registry = fixture.registry().await;
    let write = |path: &str, mode: &str| json!({"path": path, "content": PLANTED, "mode": mode});
    for (tool, arguments) in [
        ("file_read", json!({"path": "a.txt"})),
        ("file_read", json!({"path": "bad.txt"})),
        ("file_write", write("b.txt", "overwrite")),
        ("file_write", write("b.txt", "create")),
        ("file_write", write("/vault/b.txt", "append")),
        ("file_write", write("b.txt", PLANTED)),
        ("file_write", json!({"path": "b.txt", "content": PLANTED, "more": PLANTED})),
        ("echo", json!({"message": PLANTED})),
        ("echo", json!({"message": [PLANTED]})),
    ] {
        CallOutcome::run(&registry, tool, arguments).await;
    }
    assert_eq!(fixture.rows().len(), 11);
    drop(registry);
    assert_nowhere_below(&fixture.state(), PLANTED);
    let log = fs::metadata(audit::log_path(&fixture.state())).expect("the path exists");
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&log) & 0o777, 0o600, "only for its owner");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_concurrent_calls_have_their_rows_in_one_chain() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "a");
    let registry = fixture.registry().await;
    let calls: Vec<ToolCall> = (0..200)
        .map(|number| {
            let (tool, arguments): (&str, Value) = match number % 8 {
                0 | 1 => ("file_read", json!({"path": "a.txt"})),
                2 => ("file_write", json!({"path": format!("w/{number}"), "content": "x"})),
                3 => ("echo", json!({"message": "m"})),
                4 => ("failing_tool", json!({})),
                5 => ("nobody", json!({})),
                6 => ("file_list", json!({"depth": "x"})),
                _ => ("file_write", json!({"path": "/vault/x", "content": ""})),
            };
            raw_call(tool, &arguments.to_string())
        })
        .collect();
    let caller = approving_caller();
    let results = join_all(calls.into_iter().map(|call| registry.execute_with_policy(call, &caller))).await;
    let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in fixture.rows() {
        rows.entry(row.call_id.to_string()).or_default().push(row);
    }
    assert_eq!(rows.len(), 200);
    for result in results {
        let rows = rows.remove(&result.call_id).expect("rows");
        let outcome = result.outcome.error().map_or(Outcome::Ok, |error| Outcome::Error(error.kind()));
        let events: Vec<_> = rows.iter().map(|row| (row.event, row.outcome)).collect();
        let wrote = result.tool == "file_write" && outcome == Outcome::Ok;
        let end = (RowEvent::End, Some(outcome));
        let expected = if wrote { vec![(RowEvent::Begin, None), end] } else { vec![end] };
        assert_eq!(events, expected, "{}", result.tool);
    }
    let report = audit::verify(&audit::log_path(&fixture.state())).expect("readable");
    assert!(report.is_intact() && report.open_begins.is_empty(), "{report:#?}");
    assert_eq!((report.rows, report.last_seq), (226, 226));
}

/// Returns the words in backquotes of each cell of a table's row.
fn quoted_words(row: &str) -> Vec<Vec<&str>> {
    row.split('|').map(|cell| cell.split('`').skip(1).step_by(2).collect()).collect()
}

#[tokio::test]
async fn the_document_has_each_field_of_a_row_and_its_fixed_words() {
    let document = include_str!("../../../docs/audit.md");
    let table = document.split_once("\n## Fields\n").and_then(|(_, rest)| rest.split_once("\n### "));
    let rows: Vec<_> = table.expect("a table").0.lines().filter(|line| line.starts_with("| `")).collect();
    let fields: Vec<_> = rows.iter().flat_map(|row| quoted_words(row)[1].clone()).collect();
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    registry
        .execute_with_policy(raw_call("echo", r#"{"message": "m"}"#), &caller())
        .await
        .into_result()
        .expect("echoes");
    let log = fs::read_to_string(audit::log_path(&fixture.state())).expect("readable");
    let line = log.lines().nth(1).expect("a row after the start");
    let row: BTreeMap<String, Value> = serde_json::from_str(line).expect("JSON");
    assert_eq!(fields.iter().copied().collect::<BTreeSet<_>>(), row.keys().map(String::as_str).collect());
    // No nested key has the name of another field, so the first match is the field's.
    let positions: Vec<_> = fields.iter().map(|field| line.find(&format!("\"{field}\":"))).collect();
    assert!(positions.is_sorted(), "the document has another order: {fields:?} in {line}");
    let processes = document.split_once("\n### Rows about a process\n").expect("a section").1;
    for kind in [RowEvent::Start, RowEvent::Policy, RowEvent::Stop] {
        assert!(processes.contains(&format!("\n| `{kind}` |")), "{kind}");
    }
    let start =
        log.lines().next().and_then(|line| serde_json::from_str::<BTreeMap<String, Value>>(line).ok());
    for field in start.expect("a start").keys() {
        assert!(processes.contains(&format!("`{field}`")), "{field}");
    }
    let approvers = document.split_once("\n### Approvers\n").expect("a section").1;
    for kind in ApproverKind::ALL {
        assert!(approvers.contains(&format!("\n| `{kind}` |")), "{kind}");
    }
    for (field, expected_word) in [
        (
            "event",
            [
                RowEvent::Begin,
                RowEvent::End,
                RowEvent::Result,
                RowEvent::Model,
                RowEvent::Approve,
                RowEvent::Revoke,
            ]
            .map(RowEvent::as_str)
            .to_vec(),
        ),
        ("tier", SafetyTier::ALL.map(SafetyTier::as_str).to_vec()),
        ("confinement", Confinement::ALL.map(Confinement::as_str).to_vec()),
        ("decision", [Decision::Allow, Decision::Deny].map(Decision::as_str).to_vec()),
    ] {
        let row = rows.iter().find(|row| quoted_words(row)[1] == [field]).expect("its row");
        assert_eq!(quoted_words(row)[2], expected_word, "{field}");
    }
}
