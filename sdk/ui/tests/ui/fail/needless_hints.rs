//! A hint that the tier already implies.

use portcullis_sdk::tool;

#[tool(tier = ReadOnly, idempotent)]
async fn needless_hints() {}

fn main() {}
