//! Bounds that the decoder would not check.

use portcullis_sdk::args;

#[args]
struct Page {
    #[arg(min = 1)]
    number: u32,
    #[schemars(range(min = 1, max = 100))]
    size: u32,
}

fn main() {}
