//! A flattened field, and a misspelt attribute of serde.

use portcullis_sdk::args;

#[args]
struct Page {
    number: u32,
}

#[args]
#[serde(rename_al = "camelCase")]
struct Query {
    #[serde(flatten)]
    page: Page,
}

fn main() {}
