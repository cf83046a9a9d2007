//! A mutable reference.

use portcullis_sdk::tool;

#[tool]
async fn mutable_reference(text: &mut str) -> String {
    text.to_owned()
}

fn main() {}
