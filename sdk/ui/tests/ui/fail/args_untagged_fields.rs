//! An untagged variant that only its fields distinguish.

#[portcullis_sdk::args]
#[serde(untagged)]
enum Shape {
    Circle { radius: f64 },
    Nothing,
}

fn main() {}
