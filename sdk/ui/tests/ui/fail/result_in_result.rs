//! A `Result` of a type that a tool cannot return.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn result_in_result(path: String) -> Result<std::time::Instant, portcullis_sdk::ToolError> {
    let _ = path;
    Ok(std::time::Instant::now())
}

fn main() {}
