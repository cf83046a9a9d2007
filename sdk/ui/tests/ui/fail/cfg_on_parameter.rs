//! A parameter under `#[cfg]`.

use portcullis_sdk::tool;

#[tool]
async fn cfg_on_parameter(#[cfg(unix)] path: String) -> String {
    path
}

fn main() {}
