//! A result that is none.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn result_type(path: String) -> std::time::Instant {
    let _ = path;
    std::time::Instant::now()
}

fn main() {}
