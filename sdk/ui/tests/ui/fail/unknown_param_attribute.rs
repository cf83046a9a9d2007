//! `#[arg]` misspelt.

use portcullis_sdk::tool;

#[tool]
async fn unknown_param_attribute(#[args(path = "read")] path: String) -> String {
    path
}

fn main() {}
