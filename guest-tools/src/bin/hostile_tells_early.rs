//! Hostile guest: sends the text that it has read long before it ends.

use portcullis_sdk::{ToolContext, ToolOutput, tool};

/// Gives the text of a file as a partial result, and then runs on.
#[tool]
async fn tells_early(ctx: &ToolContext, path: &str) -> String {
    ctx.update(ToolOutput::text(std::fs::read_to_string(path).unwrap_or_default()));
    loop {
        std::hint::spin_loop();
    }
}

portcullis_sdk::export_tools![tells_early];
