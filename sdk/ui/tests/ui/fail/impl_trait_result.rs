//! `impl Trait` as the result.

use portcullis_sdk::tool;

#[tool]
async fn impl_trait_result(path: String) -> impl ToString {
    path
}

fn main() {}
