//! Hostile guest: exits normally, but without a final frame.

use portcullis_sdk::tool;

/// Exits with 0 and says nothing.
#[tool]
#[expect(clippy::exit, reason = "the behaviour under test")]
async fn exit_without_frame() -> String {
    std::process::exit(0)
}

portcullis_sdk::export_tools![exit_without_frame];
