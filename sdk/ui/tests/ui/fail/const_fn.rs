//! A const function.

use portcullis_sdk::tool;

#[tool]
const async fn const_fn(path: String) -> String {
    path
}

fn main() {}
