//! A tag that stands for all, where nothing else may stand.

#[portcullis_sdk::args(deny_unknown)]
#[serde(tag = "kind")]
enum Size {
    Any,
}

fn main() {}
