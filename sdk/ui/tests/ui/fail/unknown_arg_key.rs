//! A misspelt key of `#[arg]`.

use portcullis_sdk::tool;

#[tool]
async fn unknown_arg_key(#[arg(pth = "read")] path: String) -> String {
    path
}

fn main() {}
