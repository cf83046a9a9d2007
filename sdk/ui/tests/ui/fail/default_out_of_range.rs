//! A default that its type cannot hold.

use portcullis_sdk::tool;

#[tool]
async fn default_out_of_range(#[arg(default = 300)] number: u8) -> String {
    number.to_string()
}

fn main() {}
