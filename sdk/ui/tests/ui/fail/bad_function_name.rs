//! A function whose name is not a tool name.

use portcullis_sdk::tool;

#[tool]
async fn größe(path: String) -> String {
    path
}

fn main() {}
