//! A default that is not in `one_of`.

use portcullis_sdk::tool;

#[tool]
async fn default_not_listed(#[arg(default = "c", one_of("a", "b"))] mode: &str) -> String {
    mode.to_owned()
}

fn main() {}
