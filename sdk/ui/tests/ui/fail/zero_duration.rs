//! A timeout of zero.

use portcullis_sdk::tool;

#[tool(timeout = "0s")]
async fn zero_duration(path: String) -> String {
    path
}

fn main() {}
