//! A generic type.

use portcullis_sdk::{args, tool};

#[args]
struct Page<T> {
    items: Vec<T>,
}

/// Documented.
#[tool]
async fn generic(page: Page<u8>) {
    let _ = page.items;
}

fn main() {}
