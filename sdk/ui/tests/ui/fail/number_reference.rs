//! A reference to a number.

use portcullis_sdk::tool;

#[tool]
async fn number_reference(number: &u32) -> String {
    number.to_string()
}

fn main() {}
