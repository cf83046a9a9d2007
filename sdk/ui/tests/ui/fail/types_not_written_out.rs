//! Incomplete types, which have no schema.

use portcullis_sdk::tool;

#[tool]
async fn types_not_written_out(
    maybe: Option,
    list: Vec,
    hashed: std::collections::HashMap,
    sorted: std::collections::BTreeMap<String>,
    within: Vec<Option>,
    unknown: _,
    unknown_items: Vec<_>,
) {
    let _ = (maybe, list, hashed, sorted, within, unknown, unknown_items);
}

fn main() {}
