//! Invalid aliases.

use portcullis_sdk::tool;

#[tool(aliases("gr p", "Bad_Alias", "grep", "grep"))]
async fn bad_alias() {}

fn main() {}
