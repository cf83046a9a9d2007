//! A variant that only its fields would tell.

#[portcullis_sdk::args]
#[serde(untagged)]
enum Shape {
    Circle { radius: f64 },
    Nothing,
}

fn main() {}
