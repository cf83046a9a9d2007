//! Attributes of serde that would make schema and decoder differ, and attributes of other crates.

use portcullis_sdk::args;

#[args]
#[serde(from = "String")]
struct Converted {
    text: String,
}

#[args]
#[serde(crate = "serde", bound = "", deny_unknown_fields)]
struct Ours {
    #[serde(skip_deserializing)]
    written: u8,
    #[serde(skip_serializing)]
    read: u8,
    #[serde(with = "elsewhere")]
    other: u8,
    #[serde(borrow)]
    text: String,
}

#[args]
#[serde(tag = "kind", content = "value")]
enum Adjacent {
    One(u8),
    #[serde(other)]
    Others,
}

#[args]
#[garde(allow_unvalidated)]
struct Checked {
    #[validate(range(min = 1))]
    number: u8,
    #[garde(length(min = 1))]
    name: String,
}

fn main() {}
