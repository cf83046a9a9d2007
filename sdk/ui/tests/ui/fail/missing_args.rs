//! An author's type without `#[args]`.

use portcullis_sdk::tool;

struct Filter {
    pattern: String,
}

/// Documented.
#[tool]
async fn missing_args(filters: Option<Vec<Filter>>) -> String {
    filters.into_iter().flatten().map(|filter| filter.pattern).collect()
}

fn main() {}
