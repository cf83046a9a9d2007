//! An `#[arg]` on a state.

use portcullis_sdk::{State, tool};

struct Counter;

#[tool]
async fn state_with_arg(#[arg(default)] counter: &State<Counter>) {
    let _ = counter;
}

fn main() {}
