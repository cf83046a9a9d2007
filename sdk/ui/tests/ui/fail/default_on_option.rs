//! A default of an `Option`.

use portcullis_sdk::tool;

#[tool]
async fn default_on_option(#[arg(default = 1)] number: Option<u8>) -> String {
    format!("{number:?}")
}

fn main() {}
