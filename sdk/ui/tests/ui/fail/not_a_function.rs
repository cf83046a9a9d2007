//! `#[tool]` on an item that is not a function.

use portcullis_sdk::tool;

#[tool]
struct NotAFunction;

fn main() {}
