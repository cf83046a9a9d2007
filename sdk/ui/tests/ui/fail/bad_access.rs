//! An unknown access.

use portcullis_sdk::tool;

#[tool]
async fn bad_access(#[arg(path = "wirte")] path: String) -> String {
    path
}

fn main() {}
