//! A union.

#[portcullis_sdk::args]
union Number {
    whole: u32,
    real: f32,
}

fn main() {}
