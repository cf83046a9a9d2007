//! `impl Trait` as a parameter.

use portcullis_sdk::tool;

#[tool]
async fn impl_trait_parameter(path: impl ToString) -> String {
    path.to_string()
}

fn main() {}
