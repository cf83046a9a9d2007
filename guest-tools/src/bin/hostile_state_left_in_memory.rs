//! Hostile guest: leaves data in its memory that the next call could find.

use std::sync::atomic::{AtomicU64, Ordering};

use portcullis_sdk::tool;

/// Says how many calls this memory has seen before.
#[tool]
async fn state_left_in_memory() -> String {
    CALLS.fetch_add(1, Ordering::Relaxed).to_string()
}

static CALLS: AtomicU64 = AtomicU64::new(0);

portcullis_sdk::export_tools![state_left_in_memory];
