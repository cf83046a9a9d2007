//! A size with an unknown unit.

use portcullis_sdk::tool;

#[tool(output_cap = "16KB")]
async fn bad_output_cap() {}

fn main() {}
