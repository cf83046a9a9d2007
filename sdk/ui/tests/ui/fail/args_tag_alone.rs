//! A variant that consists only of its tag, in a type that refuses unknown fields.

#[portcullis_sdk::args(deny_unknown)]
#[serde(tag = "kind")]
enum Size {
    Any,
}

fn main() {}
