//! An alias, which the schema cannot show.

use portcullis_sdk::args;

#[args]
struct Filter {
    #[serde(alias = "glob")]
    pattern: String,
}

fn main() {}
