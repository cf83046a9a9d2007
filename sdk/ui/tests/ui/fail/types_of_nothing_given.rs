//! Types that no caller can provide.

use portcullis_sdk::{ToolContext, ToolError, tool};

#[tool]
async fn types_of_nothing_given(
    context: Option<&ToolContext>,
    outcome: Result<String, ToolError>,
    maybe: Option<Result<u8, ToolError>>,
    shown: &dyn std::fmt::Display,
) {
    let _ = (context, outcome, maybe, shown);
}

fn main() {}
