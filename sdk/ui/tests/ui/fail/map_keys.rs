//! Maps whose keys are not strings.

use std::collections::HashMap;

use portcullis_sdk::tool;

#[tool]
async fn map_keys(names: HashMap<u32, String>) {
    let _ = names;
}

fn main() {}
