//! A module that exports a tool with a state.

use portcullis_sdk::{State, tool};

struct Counter;

/// Counts.
#[tool]
async fn count(counter: &State<Counter>) {
    let _ = counter;
}

portcullis_sdk::export_tools![count];
