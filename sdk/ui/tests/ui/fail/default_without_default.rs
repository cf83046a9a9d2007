//! A type that has no default.

use portcullis_sdk::{args, tool};

#[args]
struct Filter {
    pattern: String,
}

/// Documented.
#[tool]
async fn default_without_default(#[arg(default)] filter: Filter) -> String {
    filter.pattern
}

fn main() {}
