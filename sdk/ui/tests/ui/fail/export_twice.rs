//! A tool that is exported twice.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn once() {}

portcullis_sdk::export_tools![once, once];
