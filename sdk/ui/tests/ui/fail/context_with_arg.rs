//! An `#[arg]` on the context.

use portcullis_sdk::tool;

#[tool]
async fn context_with_arg(#[arg(url)] ctx: &portcullis_sdk::ToolContext) -> String {
    ctx.call_id.clone()
}

fn main() {}
