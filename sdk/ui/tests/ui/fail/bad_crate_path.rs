//! A path of the facade that is none.

use portcullis_sdk::tool;

#[tool(crate = "my crate")]
async fn bad_crate_path() {}

fn main() {}
