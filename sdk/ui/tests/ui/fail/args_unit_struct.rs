//! A structure without fields.

#[portcullis_sdk::args]
struct Nothing;

fn main() {}
