//! A state that is not lent.

use portcullis_sdk::{State, tool};

struct Counter;

#[tool]
async fn state_given(counter: State<Counter>) {
    let _ = counter;
}

fn main() {}
