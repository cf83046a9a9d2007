//! A name that the schema does not show.

use portcullis_sdk::args;

#[args]
struct Filter {
    #[serde(alias = "glob")]
    pattern: String,
}

fn main() {}
