//! A `PathBuf`.

use portcullis_sdk::tool;

#[tool]
async fn path_buf(path: std::path::PathBuf) -> String {
    path.display().to_string()
}

fn main() {}
