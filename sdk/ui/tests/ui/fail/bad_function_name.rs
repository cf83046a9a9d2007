//! A function whose name is not a tool name.

use portcullis_sdk::tool;

#[tool]
#[allow(non_snake_case)]
async fn readFile(path: String) -> String {
    path
}

fn main() {}
