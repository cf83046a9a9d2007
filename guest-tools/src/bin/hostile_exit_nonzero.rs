//! Hostile guest: exits with a non-zero code.

use portcullis_sdk::tool;

/// Exits with a code.
#[tool]
#[expect(clippy::exit, reason = "the behaviour under test")]
async fn exit_nonzero(#[arg(default = 7)] code: i32) -> String {
    std::process::exit(code)
}

portcullis_sdk::export_tools![exit_nonzero];
