//! Hostile guest: panics.

use portcullis_sdk::tool;

/// Panics with a message.
#[tool]
async fn panics(#[arg(default = "hostile panic")] message: &str) -> String {
    panic!("{message}")
}

portcullis_sdk::export_tools![panics];
