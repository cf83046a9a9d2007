//! A destructured parameter.

use portcullis_sdk::tool;

#[tool]
async fn tuple_pattern((a, b): (String, String)) -> String {
    a + &b
}

fn main() {}
