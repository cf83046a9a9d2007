//! A description that the macro cannot read.

use portcullis_sdk::tool;

#[doc = include_str!("unreadable_docs.rs")]
#[tool]
async fn unreadable_docs(path: String) -> String {
    path
}

fn main() {}
