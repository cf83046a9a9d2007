//! A tagged variant whose content is a string, which cannot hold the tag.

#[portcullis_sdk::args]
#[serde(tag = "kind")]
enum Size {
    Named(String),
}

fn main() {}
