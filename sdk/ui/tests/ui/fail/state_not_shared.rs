//! A state that several threads cannot share.

use std::cell::Cell;

use portcullis_sdk::{State, tool};

/// Counts.
#[tool]
async fn state_not_shared(counter: &State<Cell<u8>>) {
    counter.set(1);
}

fn main() {}
