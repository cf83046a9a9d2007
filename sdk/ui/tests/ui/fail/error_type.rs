//! An error that does not convert to a `ToolError`.

use portcullis_sdk::tool;

struct MyError;

/// Documented.
#[tool]
async fn error_type(path: String) -> Result<String, MyError> {
    let _ = path;
    Err(MyError)
}

fn main() {}
