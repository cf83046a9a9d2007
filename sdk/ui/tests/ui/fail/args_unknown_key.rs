//! A key in another spelling.

#[portcullis_sdk::args(deny_unknown_fields)]
struct Filter {
    pattern: String,
}

fn main() {}
