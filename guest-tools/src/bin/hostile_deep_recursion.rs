//! Hostile guest: recurses until its stack overflows.

use portcullis_sdk::tool;

/// Calls itself `depth` times.
#[tool]
async fn deep_recursion(#[arg(default = 1_000_000_000)] depth: u64) -> String {
    descend(depth).to_string()
}

/// Uses no linear memory, so the engine's own stack overflows. The compiler can turn the second call into a loop, but
/// not the first.
fn descend(depth: u64) -> u64 {
    if depth == 0 { 1 } else { descend(depth - 1) ^ descend(depth >> 1) }
}

portcullis_sdk::export_tools![deep_recursion];
