//! What a tier says already.

use portcullis_sdk::tool;

#[tool(tier = ReadOnly, idempotent)]
async fn needless_hints() {}

fn main() {}
