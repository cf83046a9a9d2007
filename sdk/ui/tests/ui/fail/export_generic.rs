//! A tool that is exported with generics.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn plain() {}

portcullis_sdk::export_tools![plain::<u8>];
