//! A marked context that is not lent.

use portcullis_sdk::{ToolContext as Call, tool};

#[tool]
async fn context_given(#[ctx] call: Call) {
    let _ = call;
}

fn main() {}
