//! An invalid path of the facade.

use portcullis_sdk::tool;

#[tool(crate = "my crate")]
async fn bad_crate_path() {}

fn main() {}
