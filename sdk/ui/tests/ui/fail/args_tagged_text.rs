//! A text cannot hold a tag.

#[portcullis_sdk::args]
#[serde(tag = "kind")]
enum Size {
    Named(String),
}

fn main() {}
