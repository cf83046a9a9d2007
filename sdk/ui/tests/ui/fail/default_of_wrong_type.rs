//! A string as the default of a number.

use portcullis_sdk::tool;

#[tool]
async fn default_of_wrong_type(#[arg(default = "one")] number: u32) -> String {
    number.to_string()
}

fn main() {}
