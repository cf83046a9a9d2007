//! A `&Path`.

use portcullis_sdk::tool;

#[tool]
async fn path_reference(path: &std::path::Path) -> String {
    path.display().to_string()
}

fn main() {}
