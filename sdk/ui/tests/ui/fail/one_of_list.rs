//! `one_of` on a list.

use portcullis_sdk::tool;

#[tool]
async fn one_of_list(#[arg(one_of("a", "b"))] names: Vec<String>) {
    let _ = names;
}

fn main() {}
