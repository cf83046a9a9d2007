//! A result that is none, in a `Result`.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn result_in_result(path: String) -> Result<std::time::Instant, portcullis_sdk::ToolError> {
    let _ = path;
    Ok(std::time::Instant::now())
}

fn main() {}
