//! `#[tool]` on something else.

use portcullis_sdk::tool;

#[tool]
struct NotAFunction;

fn main() {}
