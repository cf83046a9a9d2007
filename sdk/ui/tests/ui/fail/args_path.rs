//! A path inside an argument, where the policy does not see it.

#[portcullis_sdk::args]
struct Copy {
    from: Option<std::path::PathBuf>,
}

fn main() {}
