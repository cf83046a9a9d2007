//! A tier in the wrong spelling.

use portcullis_sdk::tool;

#[tool(tier = Readonly)]
async fn bad_tier(path: String) -> String {
    path
}

fn main() {}
