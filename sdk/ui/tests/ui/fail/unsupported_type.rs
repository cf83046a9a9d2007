//! A type without a JSON form.

use portcullis_sdk::tool;

#[tool]
async fn unsupported_type(values: fn(u8) -> u8) -> String {
    values(1).to_string()
}

fn main() {}
