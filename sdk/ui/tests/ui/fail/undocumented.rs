//! A tool without documentation is a warning, at its name, beside whatever else is wrong.

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
