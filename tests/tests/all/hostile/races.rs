//! TOCTOU races: a second thread exchanges a folder with a link while guests walk through it.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use portcullis_testing::Fixture;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use super::{Trial, entry, snapshot::Snapshot};

const EXCHANGES: usize = 10_000;

/// Exchanges two paths until it is stopped. Makes at least [`EXCHANGES`] exchanges, and an even number so
/// that both paths end with their original names.
fn exchange(left: &std::path::Path, right: &std::path::Path, stop: &AtomicBool) {
    let mut exchange_count = 0;
    while exchange_count < EXCHANGES || exchange_count % 2 == 1 || !stop.load(Ordering::Acquire) {
        renameat_with(CWD, left, CWD, right, RenameFlags::EXCHANGE).expect("exchanges");
        exchange_count += 1;
    }
}

/// Lets guests try operations on `shared/door/…` while the door alternates between a folder and a link.
async fn race(trial: &Trial, attempts: &[serde_json::Value]) {
    let (door, link) = (trial.fixture.shared("door"), trial.fixture.shared("link"));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let swapper = std::thread::spawn(move || exchange(&door, &link, &stopped));
    while !swapper.is_finished() {
        for arguments in attempts {
            trial.call(arguments.clone()).await;
        }
        stop.store(true, Ordering::Release);
    }
    swapper.join().expect("no exchange fails");
}

#[tokio::test]
async fn a_folder_exchanged_for_a_link_never_leads_out() {
    let fixture = Fixture::new()
        .with_policy_edit("calls_per_minute = 600", "calls_per_minute = 100000")
        .with_policy(&entry("raw_path", "FileReadWrite", "15s"));
    let outside = tempfile::tempdir().expect("a folder");
    for name in ["secret", "victim"] {
        fs::write(outside.path().join(name), "OUTSIDE").expect("written");
        fixture.put(&format!("door/{name}"), "inside");
    }
    symlink(outside.path(), fixture.shared("link")).expect("linked");
    let trial = Trial::in_fixture(fixture, "raw_path").await;
    let before = Snapshot::take(outside.path());
    let times = 200;
    race(
        &trial,
        &[
            json!({"op": "read", "path": "door/secret", "times": times}),
            json!({"op": "write", "path": "door/victim", "times": times}),
            json!({"op": "create", "path": "door/new", "times": times}),
            json!({"op": "truncate", "path": "door/victim", "times": times}),
            json!({"op": "mkdir", "path": "door/made", "times": times}),
            json!({"op": "symlink", "path": "secret", "to": "door/linked", "times": times}),
            json!({"op": "link", "path": "door/secret", "to": "stolen", "times": times}),
            json!({"op": "rename", "path": "door/secret", "to": "door/moved", "times": times}),
            json!({"op": "rename", "path": "door/moved", "to": "door/secret", "times": times}),
            json!({"op": "remove", "path": "door/new", "times": times}),
            json!({"op": "touch", "path": "door/victim", "times": times}),
            json!({"op": "read", "path": "stolen"}),
        ],
    )
    .await;
    before.assert_unchanged(&Snapshot::take(outside.path()), "a race");
    assert!(!trial.fixture.shared("loot").exists(), "a guest has read what is outside");
    trial.assert_others_are_served().await;
}
