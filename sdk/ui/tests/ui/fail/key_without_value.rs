//! A key without its value.

use portcullis_sdk::tool;

#[tool(timeout)]
async fn key_without_value(path: String) -> String {
    path
}

fn main() {}
