//! A number as a path.

use portcullis_sdk::tool;

#[tool]
async fn role_of_number(#[arg(path = "read")] path: u32) -> String {
    path.to_string()
}

fn main() {}
