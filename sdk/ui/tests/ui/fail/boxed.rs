//! A boxed argument.

use portcullis_sdk::tool;

#[tool]
async fn boxed(name: Box<Vec<String>>) {
    let _ = name;
}

fn main() {}
