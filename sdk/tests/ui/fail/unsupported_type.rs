//! A type without a schema.

use portcullis_sdk::tool;

#[tool]
async fn unsupported_type(values: Vec<u8>) -> String {
    format!("{values:?}")
}

fn main() {}
