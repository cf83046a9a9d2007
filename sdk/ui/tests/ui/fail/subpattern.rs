//! A parameter with a subpattern.

use portcullis_sdk::tool;

#[tool]
async fn subpattern(whole @ _: String, rest @ ..: String) {
    let _ = (whole, rest);
}

fn main() {}
