//! A type that a tool cannot return.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn result_type(path: String) -> std::time::Instant {
    let _ = path;
    std::time::Instant::now()
}

fn main() {}
