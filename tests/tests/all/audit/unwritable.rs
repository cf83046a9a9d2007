//! A log that cannot be written: no call runs unrecorded, and no result is given that is not on record.

use std::{
    fs::{self, OpenOptions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::symlink,
    path::Path,
    sync::atomic::Ordering,
};

use portcullis_testing::{CallOutcome, World};
use portcullis_tools::{BootstrapError, audit};
use portcullis_types::{SafetyTier, ToolError, ToolErrorKind::Unavailable, ToolOutput};
use serde_json::json;

use super::processes::{self, Child};
use crate::support::{Spy, caller, listening, natives, raw, snapshot, world_enabling};

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
        let world = World::new();
        world.put("a.txt", "x".repeat(20_000));
        let registry = world.registry().await;
        CallOutcome::of(&registry, "file_write", json!({"path": "b.txt", "content": "b"}))
            .await
            .0
            .outcome
            .expect(how);
        let before = snapshot(&world.workspace());
        sabotage(&audit::log_path(&world.state()));
        for (tool, arguments) in [
            ("file_write", json!({"path": "new/c.txt", "content": "c"})),
            ("file_write", json!({"path": "b.txt", "content": "c", "mode": "append"})),
            ("file_write", json!({"path": "/vault/x", "content": "c"})),
            ("file_read", json!({"path": "a.txt"})),
            ("echo", json!({"message": "m"})),
            ("nobody", json!({})),
        ] {
            let answer = CallOutcome::of(&registry, tool, arguments.clone()).await;
            let error = answer.error();
            let shown = format!("{how}: {tool} {arguments}");
            assert_eq!((error.kind(), error.code()), (Unavailable, "audit_unwritable"), "{shown}: {error}");
            assert_eq!(error.to_string(), "the call cannot be recorded, so it is refused", "{shown}");
            // Nor beside the result: the id of a stored output would tell what was read.
            assert_eq!(answer.0.details, json!({}), "{shown}");
            assert!(!answer.0.truncated, "{shown}");
        }
        assert_eq!(snapshot(&world.workspace()), before, "{how}");
    }
}

#[tokio::test]
async fn without_a_log_no_effect_happens_and_no_result_is_heard() {
    let world = world_enabling(&["reader", "writer"]);
    let spies = [Spy::repeating("reader"), Spy::repeating("writer").tier(SafetyTier::SideEffecting)];
    let calls = spies.each_ref().map(Spy::calls);
    let registry = natives(&world, spies);
    registry.execute_with_policy(raw("writer", "{}"), &caller()).await.outcome.expect("runs");
    fs::remove_file(audit::log_path(&world.state())).expect("removable");
    let mut caller = caller();
    let heard = listening(&mut caller);
    for tool in ["writer", "reader"] {
        let error =
            registry.execute_with_policy(raw(tool, "{}"), &caller).await.outcome.expect_err("refused");
        assert_eq!(error.code(), "audit_unwritable");
    }
    assert_eq!(calls[1].load(Ordering::SeqCst), 1, "the writer ran only while there was a log");
    let heard = heard.lock().expect("not poisoned").clone();
    assert_eq!(
        heard,
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
    let world = World::new();
    let registry = natives(&world, []);
    let log = audit::log_path(&world.state());
    let echo = async || {
        let result = registry.execute_with_policy(raw("echo", r#"{"message":"m"}"#), &caller()).await;
        result.outcome.map_err(|error| error.code().to_owned())
    };
    echo().await.expect("runs");
    fs::rename(&log, log.with_extension("old")).expect("renamable");
    assert_eq!(echo().await.expect_err("refused"), "audit_unwritable");
    fs::rename(log.with_extension("old"), &log).expect("renamable");
    echo().await.expect("runs again");
    let report = audit::verify(&log).expect("readable");
    assert!(report.is_intact(), "{report:#?}");
    assert_eq!(report.rows, 2);
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
        let world = World::new();
        prepare(&audit::log_path(&world.state()));
        let error = match world.builder().await {
            Ok(builder) => builder.build().expect_err(how),
            Err(error) => error,
        };
        assert!(matches!(error, BootstrapError::Audit(_)), "{how}: {error}");
    }
}

/// The part of the test below that runs in a process with a limit on file sizes.
#[tokio::test]
async fn child_with_a_full_disk() {
    let Some(world) = processes::inherited_world() else { return };
    let folder = world.shared("");
    let spy = Spy::new("spy", move |_, args| {
        let effect = folder.join(args.value()["n"].to_string());
        async move {
            fs::write(effect, "done").map_err(ToolError::from)?;
            Ok(ToolOutput::text("done"))
        }
    });
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let registry = world.natives(spy.parameters(schema).tier(SafetyTier::SideEffecting));
    // A row has some hundred bytes, and the limit is some ten thousand.
    let mut refused = None;
    for number in 0..500 {
        let call = raw("spy", &json!({"n": number}).to_string());
        if let Err(error) = registry.execute_with_policy(call, &caller()).await.outcome {
            assert_eq!(error.code(), "audit_unwritable", "{error}");
            refused.get_or_insert(number);
        }
    }
    processes::say(&format!("refused {}", refused.expect("the limit is reached")));
}

#[tokio::test]
async fn on_a_full_disk_no_call_runs_unrecorded() {
    let world = world_enabling(&["spy"]);
    assert!(world.policy_file().is_file());
    let child = "audit::unwritable::child_with_a_full_disk";
    let mut child = Child::start(child, &world, processes::FileLimit::Small);
    let refused: u64 = child.line_with("refused ").trim().parse().expect("a number");
    child.wait();
    assert!(refused > 5, "there was room for some");
    let begun = world.rows().iter().filter(|row| row.outcome.is_none()).count();
    let done = fs::read_dir(world.shared("")).expect("readable").count();
    // The last call that ran may have found no room for its end row: then it is on record as begun.
    assert_eq!(done, begun, "each effect has the row that came before it");
    let report = audit::verify(&audit::log_path(&world.state())).expect("readable");
    assert!(report.is_intact(), "half a row was taken back: {report:#?}");
    // Once there is room, the next start closes the call that was left open.
    drop(natives(&world, [Spy::repeating("spy")]));
    let report = audit::verify(&audit::log_path(&world.state())).expect("readable");
    assert!(report.is_intact() && report.open_begins.is_empty(), "{report:#?}");
}
