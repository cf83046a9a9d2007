//! `#[args]` on a function.

#[portcullis_sdk::args]
async fn search(query: String) {}

fn main() {}
