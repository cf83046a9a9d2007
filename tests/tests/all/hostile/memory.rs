//! The host's memory stays flat under repeated attacks.

use serde_json::{Value, json};

use super::{
    Trial,
    alone::{resident_bytes, run_in_separate_process},
};

/// Runs of each bomb before the measurement, and during it.
const WARM_UP: usize = 3;
const RUNS: usize = 20;

/// The permitted growth over all runs: about one guest's memory, which is a small part of the runs'
/// allocations.
const GROWTH_BYTES: u64 = 64 << 20;

async fn check(guest: &'static str, arguments: Value) {
    let trial = Trial::new(guest).await;
    for _ in 0..WARM_UP {
        trial.call(arguments.clone()).await;
    }
    let before = resident_bytes();
    for _ in 0..RUNS {
        trial.call(arguments.clone()).await;
    }
    let after = resident_bytes();
    assert!(after < before + GROWTH_BYTES, "{guest}: {before} → {after} bytes in {RUNS} runs");
    trial.assert_others_are_served().await;
}

#[test]
fn bombs_leave_nothing_behind() {
    run_in_separate_process("hostile::memory::bombs_leave_nothing_behind", async {
        check("memory_bomb", json!({"then": "abort"})).await;
        check("memory_bomb", json!({"then": "report"})).await;
        check("deep_recursion", json!({})).await;
        check("deep_frame", json!({})).await;
        check("panics", json!({})).await;
        check("two_final_frames", json!({})).await;
    });
}

#[test]
fn floods_leave_nothing_behind() {
    run_in_separate_process("hostile::memory::floods_leave_nothing_behind", async {
        check("stdout_flood", json!({})).await;
        check("stderr_flood", json!({"bytes": 256 << 20})).await;
        check("oversized_progress", json!({})).await;
        check("oversized_progress", json!({"bytes": 1_000_000})).await;
        check("oversized_result", json!({})).await;
        check("oversized_result", json!({"bytes": 8_000_000})).await;
        check("progress_flood", json!({})).await;
    });
}
