//! A log that cannot be written: no call runs unrecorded, and no unrecorded result is released.

use std::{
    fs::{self, OpenOptions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::symlink,
    path::Path,
    sync::atomic::Ordering,
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{BootstrapError, audit};
use portcullis_types::{SafetyTier, ToolError, ToolErrorKind::Unavailable, ToolOutput};
use serde_json::json;

use super::processes::{self, Child};
use crate::support::{Spy, caller, fixture_enabling, native_registry, raw_call, record_events, snapshot};

/// A way to tamper with a log in use, and its name.
type Sabotage = (&'static str, fn(&Path));

/// Every way to tamper with a log.
const SABOTAGE: &[Sabotage] = &[
    ("removed", |log| fs::remove_file(log).expect("removable")),
    ("moved away", |log| fs::rename(log, log.with_extension("old")).expect("renamable")),
    ("a folder in its place", |log| {
        fs::remove_file(log).expect("removable");
        fs::create_dir(log).expect("a folder");
    }),
    ("a link in its place", |log| {
        let old = log.with_extension("old");
        fs::rename(log, &old).expect("renamable");
        symlink(old, log).expect("a link");
    }),
    ("a copy in its place", |log| {
        let old = log.with_extension("old");
        fs::rename(log, &old).expect("renamable");
        fs::copy(old, log).expect("a copy");
    }),
    ("emptied", |log| OpenOptions::new().write(true).open(log).expect("opens").set_len(0).expect("cut")),
    ("its last row altered", |log| {
        let mut file = OpenOptions::new().write(true).open(log).expect("opens");
        file.seek(SeekFrom::End(-10)).expect("long enough");
        file.write_all(b"x").expect("writable");
    }),
];

#[tokio::test]
async fn with_a_tampered_log_calls_are_refused_and_change_nothing() {
    for (how, sabotage) in SABOTAGE {
        let fixture = Fixture::new();
        fixture.put("a.txt", "x".repeat(20_000));
        let registry = fixture.registry().await;
        CallOutcome::run(&registry, "file_write", json!({"path": "b.txt", "content": "b"}))
            .await
            .0
            .into_result()
            .expect(how);
        let before = snapshot(&fixture.workspace());
        sabotage(&audit::log_path(&fixture.state()));
        for (tool, arguments) in [
            ("file_write", json!({"path": "new/c.txt", "content": "c"})),
            ("file_write", json!({"path": "b.txt", "content": "c", "mode": "append"})),
            ("file_write", json!({"path": "/vault/x", "content": "c"})),
            ("file_read", json!({"path": "a.txt"})),
            ("echo", json!({"message": "m"})),
            ("nobody", json!({})),
        ] {
            let answer = CallOutcome::run(&registry, tool, arguments.clone()).await;
            let error = answer.error();
            let description = format!("{how}: {tool} {arguments}");
            assert_eq!(
                (error.kind(), error.code()),
                (Unavailable, "audit_unwritable"),
                "{description}: {error}"
            );
            assert_eq!(error.to_string(), "the call cannot be recorded, so it is refused", "{description}");
            // The details are empty too, because the id of a stored output would give access to the result.
            assert_eq!(answer.0.details, json!({}), "{description}");
            assert!(!answer.0.truncated, "{description}");
        }
        assert_eq!(snapshot(&fixture.workspace()), before, "{how}");
    }
}

#[tokio::test]
async fn without_a_log_there_is_no_effect_and_no_result() {
    let fixture = fixture_enabling(&["reader", "writer"]);
    let spies = [Spy::repeating("reader"), Spy::repeating("writer").tier(SafetyTier::SideEffecting)];
    let calls = spies.each_ref().map(Spy::calls);
    let registry = native_registry(&fixture, spies);
    registry.execute_with_policy(raw_call("writer", "{}"), &caller()).await.into_result().expect("runs");
    fs::remove_file(audit::log_path(&fixture.state())).expect("removable");
    let mut caller = caller();
    let events = record_events(&mut caller);
    for tool in ["writer", "reader"] {
        let error = registry
            .execute_with_policy(raw_call(tool, "{}"), &caller)
            .await
            .into_result()
            .expect_err("refused");
        assert_eq!(error.code(), "audit_unwritable");
    }
    assert_eq!(calls[1].load(Ordering::SeqCst), 1, "the writer ran only while there was a log");
    let events = events.lock().expect("not poisoned").clone();
    assert_eq!(
        events,
        [
            "requested writer",
            "finished unavailable",
            "requested reader",
            "started reader",
            "finished unavailable",
        ]
    );
}

#[tokio::test]
async fn calls_run_again_once_the_log_is_back() {
    let fixture = Fixture::new();
    let registry = native_registry(&fixture, []);
    let log = audit::log_path(&fixture.state());
    let echo = async || {
        let result = registry.execute_with_policy(raw_call("echo", r#"{"message":"m"}"#), &caller()).await;
        result.into_result().map_err(|error| error.code().to_owned())
    };
    echo().await.expect("runs");
    fs::rename(&log, log.with_extension("old")).expect("renamable");
    assert_eq!(echo().await.expect_err("refused"), "audit_unwritable");
    fs::rename(log.with_extension("old"), &log).expect("renamable");
    echo().await.expect("runs again");
    let report = audit::verify(&log).expect("readable");
    assert!(report.is_intact(), "{report:#?}");
    assert_eq!(report.rows, 3);
}

#[tokio::test]
async fn without_a_log_nothing_starts() {
    for (how, prepare) in [
        ("a folder", (|log| fs::create_dir_all(log).expect("a folder")) as fn(&Path)),
        ("a dangling link", |log| {
            fs::create_dir_all(log.parent().expect("below")).expect("a folder");
            symlink("/nowhere/at/all", log).expect("a link");
        }),
        ("no log", |log| {
            fs::create_dir_all(log.parent().expect("below")).expect("a folder");
            fs::write(log, "x".repeat(6 << 20)).expect("writable");
        }),
    ] {
        let fixture = Fixture::new();
        prepare(&audit::log_path(&fixture.state()));
        let error = match fixture.builder().await {
            Ok(builder) => builder.build().expect_err(how),
            Err(error) => error,
        };
        assert!(matches!(error, BootstrapError::Audit(_)), "{how}: {error}");
    }
}

/// The part of the following test that runs in a process with a limit on file sizes.
#[tokio::test]
async fn child_with_a_full_disk() {
    let Some(fixture) = processes::inherited_fixture() else { return };
    let folder = fixture.shared("");
    let spy = Spy::new("spy", move |_, args| {
        let effect = folder.join(args.value()["n"].to_string());
        async move {
            fs::write(effect, "done").map_err(ToolError::from)?;
            Ok(ToolOutput::text("done"))
        }
    });
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let registry = fixture.native_registry(spy.parameters(schema).tier(SafetyTier::SideEffecting));
    // A row has a few hundred bytes, and the limit is about 32 KiB.
    let mut refused = None;
    for number in 0..500 {
        let call = raw_call("spy", &json!({"n": number}).to_string());
        if let Err(error) = registry.execute_with_policy(call, &caller()).await.into_result() {
            assert_eq!(error.code(), "audit_unwritable", "{error}");
            refused.get_or_insert(number);
        }
    }
    processes::print_for_parent(&format!("refused {}", refused.expect("the limit is reached")));
}

#[tokio::test]
async fn on_a_full_disk_no_call_runs_unrecorded() {
    let fixture = fixture_enabling(&["spy"]);
    assert!(fixture.policy_file().is_file());
    let child = "audit::unwritable::child_with_a_full_disk";
    let mut child = Child::start(child, &fixture, processes::FileLimit::Small);
    let refused: u64 = child.wait_for_line("refused ").trim().parse().expect("a number");
    child.wait();
    assert!(refused > 5, "there was room for some");
    let begun = fixture.rows().iter().filter(|row| row.outcome.is_none()).count();
    let done = fs::read_dir(fixture.shared("")).expect("readable").count();
    // If there was no room for the last call's end row, the log has only the call's `begin`.
    assert_eq!(done, begun, "each effect has the row that came before it");
    let report = audit::verify(&audit::log_path(&fixture.state())).expect("readable");
    assert!(report.is_intact(), "half a row was removed: {report:#?}");
    // Once there is room, the next start adds an end row for the open call.
    drop(native_registry(&fixture, [Spy::repeating("spy")]));
    let report = audit::verify(&audit::log_path(&fixture.state())).expect("readable");
    assert!(report.is_intact() && report.open_begins.is_empty(), "{report:#?}");
}
