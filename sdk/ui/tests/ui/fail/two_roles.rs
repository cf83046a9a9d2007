//! An argument with two roles.

use portcullis_sdk::tool;

#[tool]
async fn two_roles(#[arg(path = "read", url)] path: String) -> String {
    path
}

fn main() {}
