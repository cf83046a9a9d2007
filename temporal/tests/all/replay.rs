//! Histories from an earlier version of the workflow are replayed with the current one.

use std::{fs, path::Path};

use portcullis_temporal::AgentRun;
use serde_json::{Value, json};
use temporalio_client::{WorkflowFetchHistoryOptions, WorkflowHistory};
use temporalio_sdk::workflow_replayer::{WorkflowReplayer, WorkflowReplayerOptions};

use crate::{
    scripts::{ASK, FAILING, SLOW, WORK, WRONG},
    tools::ALL,
    world::{QUEUE, World, approve, cancel, result, steer, wait_for},
};

/// The variable that adds the histories of the current workflow to the recorded ones.
const RECORD: &str = "PORTCULLIS_RECORD_HISTORIES";

/// The version of the workflow, in the names of its histories. A change that a patch guards gets a new
/// version.
const VERSION: &str = "1";

/// The folder of the histories.
fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories")
}

fn replayer() -> WorkflowReplayer {
    let options = WorkflowReplayerOptions::new().register_workflow::<AgentRun>().expect("registered").build();
    WorkflowReplayer::new(options).expect("a replayer")
}

fn histories() -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder()).expect("histories").map(|entry| entry.expect("readable").path());
    let mut histories: Vec<_> = entries
        .map(|path| {
            (path.file_name().expect("a name").to_string_lossy().into_owned(), fs::read(&path).expect("read"))
        })
        .collect();
    histories.sort();
    histories
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_histories_are_replayed_without_a_difference() {
    let histories = histories();
    assert!(histories.len() >= 5, "there are histories");
    for (name, bytes) in histories {
        let history = WorkflowHistory::from_json(&bytes).expect("a history");
        let replayed = replayer().replay_workflow(history).await;
        assert!(replayed.is_ok(), "{name}: {replayed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_the_workflow_would_not_make_is_found() {
    let (name, bytes) = histories().remove(0);
    let text =
        String::from_utf8(bytes).expect("the output is UTF-8").replace("\"call_model\"", "\"ask_model\"");
    let history = WorkflowHistory::from_json(text.as_bytes()).expect("a history");
    let replayed = replayer().replay_workflow(history).await;
    let error = format!("{:?}", replayed.expect_err(&name));
    assert!(error.contains("TMPRL1100") || error.to_lowercase().contains("nondeterminism"), "{error}");
}

/// Drives runs of all kinds, and replays the histories that Temporal has recorded.
#[tokio::test(flavor = "multi_thread")]
async fn histories_of_today_are_replayed_without_a_difference() {
    let Some(world) = World::new().await else { return };
    let models = world.worker_with(QUEUE, &ALL, &["look=readers"]);
    let _readers = world.worker_with("readers", &["look"], &[]);
    let mut handles = Vec::new();
    for (name, prompt) in [("work", WORK), ("wrong", WRONG)] {
        handles.push((name, world.drive(name, prompt).await.1));
    }
    handles.push(("failing", world.drive("failing", &format!("{FAILING}server 1")).await.1));
    let asking = world.start("asking", json!({"prompt": ASK})).await;
    let report = wait_for(&asking, |status| !status.questions.is_empty()).await;
    approve(&asking, json!({"question": report.questions[0]})).await;
    result(&asking).await;
    handles.push(("asking", asking));
    for (name, is_cancelled) in [("steered", false), ("cancelled", true)] {
        let handle = world.start(name, json!({"prompt": SLOW})).await;
        wait_for(&handle, |status| status.tool.as_deref() == Some("slow")).await;
        if is_cancelled {
            cancel(&handle).await
        } else {
            steer(&handle, json!("Stop that.")).await
        }
        result(&handle).await;
        handles.push((name, handle));
    }
    drop(models);
    for (name, handle) in handles {
        let history = || handle.fetch_history(WorkflowFetchHistoryOptions::default());
        let replayed = replayer().replay_workflow(history()).await;
        assert!(replayed.is_ok(), "{name}: {replayed:?}");
        if std::env::var_os(RECORD).is_some() {
            let file = folder().join(format!("{VERSION}-{name}.json"));
            fs::write(file, history().to_json().await.expect("JSON")).expect("written");
        }
    }
}

/// The histories contain only ids, names and messages of people.
#[test]
fn recorded_histories_hold_no_results() {
    for (name, bytes) in histories() {
        let history: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert!(!history.to_string().contains("noted"), "{name}");
    }
}
