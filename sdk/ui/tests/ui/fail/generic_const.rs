//! A generic constant.

use portcullis_sdk::tool;

#[tool]
async fn generic_const<const N: usize>(path: String) -> String {
    path
}

fn main() {}
