//! A default of another type.

use portcullis_sdk::tool;

#[tool]
async fn default_of_wrong_type(#[arg(default = "one")] number: u32) -> String {
    number.to_string()
}

fn main() {}
