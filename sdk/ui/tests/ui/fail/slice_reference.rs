//! A borrowed list.

use portcullis_sdk::tool;

#[tool]
async fn slice_reference(paths: &[String]) -> String {
    paths.join(" ")
}

fn main() {}
