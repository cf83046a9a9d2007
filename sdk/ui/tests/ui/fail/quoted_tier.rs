//! A tier in quotes.

use portcullis_sdk::tool;

#[tool(tier = "ReadOnly")]
async fn quoted_tier(path: String) -> String {
    path
}

fn main() {}
