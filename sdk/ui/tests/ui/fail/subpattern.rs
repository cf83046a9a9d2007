//! A name that is given to a part of a pattern.

use portcullis_sdk::tool;

#[tool]
async fn subpattern(whole @ _: String, rest @ ..: String) {
    let _ = (whole, rest);
}

fn main() {}
