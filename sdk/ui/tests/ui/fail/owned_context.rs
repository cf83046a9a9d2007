//! A context by value.

use portcullis_sdk::tool;

#[tool]
async fn owned_context(ctx: portcullis_sdk::ToolContext) -> String {
    ctx.call_id
}

fn main() {}
