//! A host is neither a URL with a path nor one of another scheme.

use portcullis_sdk::tool;

/// Asks.
#[tool(hosts = ["api.example.com/v1", "ftp://api.example.com", "user@api.example.com", ""])]
async fn ask() {}

fn main() {}
