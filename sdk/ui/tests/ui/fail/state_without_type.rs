//! A state without its type.

use portcullis_sdk::tool;

#[tool]
async fn state_without_type(state: &portcullis_sdk::State) {
    let _ = state;
}

fn main() {}
