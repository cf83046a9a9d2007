//! A lifetime.

use portcullis_sdk::tool;

#[tool]
async fn generic_lifetime<'a>(path: String) -> String {
    path
}

fn main() {}
