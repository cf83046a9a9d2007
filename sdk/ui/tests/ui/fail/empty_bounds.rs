//! Bounds that allow no value.

use portcullis_sdk::tool;

#[tool]
async fn empty_bounds(#[arg(min = 5, max = 1)] number: u8) -> String {
    number.to_string()
}

fn main() {}
