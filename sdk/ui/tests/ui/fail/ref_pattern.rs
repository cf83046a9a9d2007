//! A parameter bound by reference.

use portcullis_sdk::tool;

#[tool]
async fn ref_pattern(ref path: String) -> String {
    path.clone()
}

fn main() {}
