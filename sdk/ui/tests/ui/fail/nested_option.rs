//! An `Option` of an `Option`.

use portcullis_sdk::tool;

#[tool]
async fn nested_option(value: Option<Option<u8>>) -> String {
    format!("{value:?}")
}

fn main() {}
