//! `Json` of a type without a schema.

use portcullis_sdk::{Json, serde, tool};

#[derive(serde::Serialize)]
#[serde(crate = "portcullis_sdk::serde")]
struct Hits {
    paths: Vec<String>,
}

/// Documented.
#[tool]
async fn json_without_schema(path: String) -> Json<Hits> {
    Json(Hits { paths: vec![path] })
}

fn main() {}
