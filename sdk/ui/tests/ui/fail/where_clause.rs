//! A `where` clause.

use portcullis_sdk::tool;

#[tool]
async fn where_clause(path: String) -> String
where
    String: Clone,
{
    path
}

fn main() {}
