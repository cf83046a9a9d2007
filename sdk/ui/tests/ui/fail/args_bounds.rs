//! Bounds that the decoder cannot check, and keys that `#[arg]` does not have on a field.

use portcullis_sdk::args;

#[args]
struct Page {
    #[schemars(range(min = 1, max = 100))]
    size: u32,
    #[arg(min = 1)]
    name: String,
    #[arg(max = 9)]
    numbers: Vec<u8>,
    #[arg(min = 5, max = 1)]
    empty: u8,
    #[arg(min = -1, max = 300)]
    narrow: u8,
    #[arg(max = 1)]
    ratio: f32,
    #[arg(mni = 1)]
    typo: u8,
    #[arg(min = 1)]
    #[schemars(with = "u8")]
    other: u8,
}

#[args]
struct Parameters {
    #[arg(path = "read")]
    path: String,
    #[arg(default = 1)]
    number: u8,
    #[arg(one_of("a", "b"))]
    text: String,
    #[arg]
    nothing: u8,
    #[arg()]
    still_nothing: u8,
}

#[args]
#[arg(min = 1)]
enum Elsewhere {
    #[arg(max = 1)]
    One(u8),
}

fn main() {}
