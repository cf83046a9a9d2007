//! A tool with a mistake is reported once, not again where it is exported.

use portcullis_sdk::tool;

#[tool]
fn broken(path: String) -> String {
    path
}

portcullis_sdk::export_tools![broken];
