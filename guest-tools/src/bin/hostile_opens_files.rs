//! Hostile guest: opens a file as often as it can, and closes no handle.

use std::fs::File;

use portcullis_sdk::tool;

/// Opens a path `times` times, and says how many opens succeeded and what the first failure was.
#[tool]
async fn opens_files(path: &str, #[arg(default = 100_000)] times: usize) -> String {
    let mut files = Vec::new();
    for _ in 0..times {
        match File::open(path) {
            Ok(file) => files.push(file),
            Err(error) => return format!("{} open, then: {error}", files.len()),
        }
    }
    format!("{} open", files.len())
}

portcullis_sdk::export_tools![opens_files];
