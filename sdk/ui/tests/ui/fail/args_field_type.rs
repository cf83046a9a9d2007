//! Fields whose type lacks `#[args]`: one error for each field, and none where the outer type is used.

use portcullis_sdk::{args, tool};

struct Pattern(String);

#[args]
struct Filter {
    pattern: Pattern,
    more: Vec<Option<Pattern>>,
    plain: String,
}

#[args]
#[serde(tag = "kind")]
enum Query {
    Filter(Filter),
    Pattern(Pattern),
}

/// Documented.
#[tool]
async fn search(filter: Filter, query: Option<Query>) {
    let _ = (filter, query);
}

fn main() {}
