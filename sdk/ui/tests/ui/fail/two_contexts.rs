//! Two contexts.

use portcullis_sdk::tool;

#[tool]
async fn two_contexts(a: &portcullis_sdk::ToolContext, b: &portcullis_sdk::ToolContext) -> String {
    a.call_id.clone() + &b.call_id
}

fn main() {}
