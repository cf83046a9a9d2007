//! A state that only one call would have.

use portcullis_sdk::{State, tool};

struct Counter;

#[tool]
async fn state_mutable(counter: &mut State<Counter>) {
    let _ = counter;
}

fn main() {}
