//! A misspelt key of `#[tool]`.

use portcullis_sdk::tool;

#[tool(timeot = "20s")]
async fn unknown_key(path: String) -> String {
    path
}

fn main() {}
