//! Invalid aliases.

use portcullis_sdk::tool;

#[tool(aliases("Grep", "bad_alias", "grep", "grep"))]
async fn bad_alias() {}

fn main() {}
