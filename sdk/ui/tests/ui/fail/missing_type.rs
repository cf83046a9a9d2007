//! A type that does not exist.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn missing_type(filter: Filter) {}

fn main() {}
