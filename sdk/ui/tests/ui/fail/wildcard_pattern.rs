//! A parameter without a name.

use portcullis_sdk::tool;

#[tool]
async fn wildcard_pattern(_: String) -> String {
    String::new()
}

fn main() {}
