//! A variadic parameter.

use portcullis_sdk::tool;

#[tool]
async fn variadic(path: String, rest: ...) -> String {
    path
}

fn main() {}
