//! A guest that is not hostile: sends three progress frames, two updates and a result.

use portcullis_sdk::{ToolContext, ToolOutput, tool};

/// Reports progress three times and two partial results, then answers.
#[tool]
async fn progress_then_ok(ctx: &ToolContext) -> String {
    for step in 1..=3 {
        ctx.progress(format!("step {step}"));
        if step < 3 {
            ctx.update(ToolOutput::text(format!("part {step}")));
        }
    }
    "whole".to_owned()
}

portcullis_sdk::export_tools![progress_then_ok];
