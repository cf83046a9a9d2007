//! An unknown approval.

use portcullis_sdk::tool;

#[tool(approval = always)]
async fn bad_approval(path: String) -> String {
    path
}

fn main() {}
