//! A result that is none, in a `Result`.

use portcullis_sdk::tool;

#[tool]
async fn result_in_result(path: String) -> Result<Vec<u8>, portcullis_sdk::ToolError> {
    Ok(path.into_bytes())
}

fn main() {}
