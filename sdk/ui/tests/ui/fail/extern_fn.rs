//! A function with another calling convention.

use portcullis_sdk::tool;

#[tool]
async extern "C" fn extern_fn(path: String) -> String {
    path
}

fn main() {}
