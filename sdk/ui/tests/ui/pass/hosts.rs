//! Hosts with and without their scheme. A declaration always has it.

use portcullis_sdk::tool;

/// Asks.
#[tool(hosts = ["api.weather.example", "https://b.example:8443", "http://localhost:8080", "*.c.example"])]
async fn ask() {}

fn main() {
    assert_eq!(
        __tool_declaration_ask().hosts,
        ["https://api.weather.example", "https://b.example:8443", "http://localhost:8080", "https://*.c.example"]
    );
}
