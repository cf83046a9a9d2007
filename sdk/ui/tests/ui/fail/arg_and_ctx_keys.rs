//! `#[arg]` without keys, in every spelling, and `#[ctx]` with keys.

use portcullis_sdk::{ToolContext as Call, tool};

#[tool]
async fn arg_and_ctx_keys(
    #[arg] path: String,
    #[arg()] address: String,
    #[arg = "read"] file: String,
    #[ctx(lent)] call: &Call,
) {
    let _ = (path, address, file, call);
}

#[tool]
async fn named_context(#[ctx = "call"] call: &Call) {
    let _ = call;
}

fn main() {}
