//! An unsafe function.

use portcullis_sdk::tool;

#[tool]
async unsafe fn unsafe_fn(path: String) -> String {
    path
}

fn main() {}
