//! A type without values, and attributes for other kinds of types.

use portcullis_sdk::args;

#[args]
enum Nothing {}

#[args]
struct Bounded
where
    String: Clone,
{
    text: String,
}

#[args]
#[serde(tag = "kind", untagged, rename_all_fields = "camelCase")]
struct Tagged {
    text: String,
}

#[args]
#[serde(default, transparent)]
enum Choice {
    One,
}

fn main() {}
