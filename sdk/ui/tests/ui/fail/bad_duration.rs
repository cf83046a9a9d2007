//! A duration without a unit.

use portcullis_sdk::tool;

#[tool(timeout = "20")]
async fn bad_duration(path: String) -> String {
    path
}

fn main() {}
