//! A marked context that is taken by value.

use portcullis_sdk::{ToolContext as Call, tool};

#[tool]
async fn context_given(#[ctx] call: Call) {
    let _ = call;
}

fn main() {}
