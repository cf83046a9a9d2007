//! An optional state.

use portcullis_sdk::{State, tool};

struct Counter;

#[tool]
async fn state_optional(counter: Option<&State<Counter>>) {
    let _ = counter;
}

fn main() {}
