//! Hosts with a path, another scheme, or a user name, and an empty host.

use portcullis_sdk::tool;

/// Asks.
#[tool(hosts = ["api.example.com/v1", "ftp://api.example.com", "user@api.example.com", ""])]
async fn ask() {}

fn main() {}
