//! A misspelt key of `#[args]`.

#[portcullis_sdk::args(deny_unknown_fields)]
struct Filter {
    pattern: String,
}

fn main() {}
