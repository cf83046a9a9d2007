//! Hostile guest: sends progress frames forever.

use portcullis_sdk::{ToolContext, tool};

/// Reports progress forever.
#[tool]
async fn progress_flood(ctx: &ToolContext) -> String {
    loop {
        ctx.progress("on and on");
    }
}

portcullis_sdk::export_tools![progress_flood];
