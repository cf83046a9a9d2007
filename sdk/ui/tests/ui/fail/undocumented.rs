//! A tool without documentation gives a warning at its name, in addition to other mistakes.

use portcullis_sdk::tool;

#[tool]
async fn undocumented(path: String) -> String {
    path
}

/// This one says what it does.
#[tool]
async fn documented(path: String) -> std::time::Instant {
    drop(path);
    std::time::Instant::now()
}

fn main() {}
