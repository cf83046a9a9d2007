//! A `Result` in a `Result`, whose inner error would count as data.

use portcullis_sdk::{ToolError, tool};

/// Documented.
#[tool]
async fn nested_result(path: String) -> Result<Result<Vec<u8>, String>, ToolError> {
    Ok(Ok(path.into_bytes()))
}

fn main() {}
