//! A string as the default of a list.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn default_of_another_type(#[arg(default = "a")] names: Vec<String>) -> String {
    names.join(" ")
}

fn main() {}
