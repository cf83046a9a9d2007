//! A path with generic arguments in `export_tools!`.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn plain() {}

portcullis_sdk::export_tools![plain::<u8>];
