//! A function that is not async.

use portcullis_sdk::tool;

#[tool]
fn not_async(path: String) -> String {
    path
}

fn main() {}
