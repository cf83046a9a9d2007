//! A result that is none.

use portcullis_sdk::tool;

#[tool]
async fn result_type(path: String) -> u32 {
    path.len() as u32
}

fn main() {}
