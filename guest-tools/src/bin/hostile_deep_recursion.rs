//! Hostile guest: calls itself until there is no stack left.

use portcullis_sdk::tool;

/// Calls itself so many times.
#[tool]
async fn deep_recursion(#[arg(default = 1_000_000_000)] depth: u64) -> String {
    descend(depth).to_string()
}

/// Keeps nothing in memory, so that it is the engine's own stack that runs out. The second call becomes a
/// loop, the first cannot.
fn descend(depth: u64) -> u64 {
    if depth == 0 { 1 } else { descend(depth - 1) ^ descend(depth >> 1) }
}

portcullis_sdk::export_tools![deep_recursion];
