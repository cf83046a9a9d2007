//! A default outside its own bounds.

use portcullis_sdk::tool;

#[tool]
async fn default_outside_bounds(#[arg(default = 0, min = 1)] number: u8) -> String {
    number.to_string()
}

fn main() {}
