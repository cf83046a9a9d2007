//! Bounds of a text.

use portcullis_sdk::tool;

#[tool]
async fn min_on_string(#[arg(min = 1)] path: String) -> String {
    path
}

fn main() {}
