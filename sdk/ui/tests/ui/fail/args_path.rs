//! A path within an argument, where no policy sees it.

#[portcullis_sdk::args]
struct Copy {
    from: Option<std::path::PathBuf>,
}

fn main() {}
