//! A duplicate key.

use portcullis_sdk::tool;

#[tool(label = "a", label = "b")]
async fn duplicate_key(path: String) -> String {
    path
}

fn main() {}
