//! A state that one call would have alone.

use portcullis_sdk::{State, tool};

struct Counter;

#[tool]
async fn state_mutable(counter: &mut State<Counter>) {
    let _ = counter;
}

fn main() {}
