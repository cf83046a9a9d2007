//! A generic type.

use portcullis_sdk::tool;

#[tool]
async fn generic_type<T>(path: String) -> String {
    path
}

fn main() {}
