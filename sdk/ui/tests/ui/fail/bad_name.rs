//! A name with invalid characters.

use portcullis_sdk::tool;

#[tool(name = "File Read")]
async fn bad_name(path: String) -> String {
    path
}

fn main() {}
