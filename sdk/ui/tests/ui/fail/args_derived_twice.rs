//! A derive that `#[args]` already adds.

use portcullis_sdk::{args, serde::Deserialize, tool};

#[args]
#[derive(Debug, Deserialize)]
struct Filter {
    pattern: String,
}

/// Documented.
#[tool]
async fn search(filter: Filter) -> String {
    format!("{filter:?}")
}

fn main() {}
