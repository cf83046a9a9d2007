//! A default that is not of the parameter's type.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn default_of_another_type(#[arg(default = "a")] names: Vec<String>) -> String {
    names.join(" ")
}

fn main() {}
