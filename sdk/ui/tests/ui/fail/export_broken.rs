//! A mistake in a tool is reported once, and not again where the tool is exported.

use portcullis_sdk::tool;

#[tool]
fn broken(path: String) -> String {
    path
}

portcullis_sdk::export_tools![broken];
