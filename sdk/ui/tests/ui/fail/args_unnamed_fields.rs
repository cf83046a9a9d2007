//! A structure and a variant with several unnamed fields.

use portcullis_sdk::{args, tool};

#[args]
struct Range(u32, u32);

#[args]
enum Size {
    Between(u32, u32),
}

/// Documented.
#[tool]
async fn uses(range: Range, size: Size) {
    let _ = (range, size);
}

fn main() {}
