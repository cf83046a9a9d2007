//! A reference that outlives the call.

use portcullis_sdk::tool;

#[tool]
async fn static_reference(text: &'static str) -> String {
    text.to_owned()
}

fn main() {}
