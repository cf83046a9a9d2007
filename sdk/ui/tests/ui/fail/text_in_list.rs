//! Borrowed texts in a list.

use portcullis_sdk::tool;

#[tool]
async fn text_in_list(names: Vec<&str>) {
    let _ = names;
}

fn main() {}
