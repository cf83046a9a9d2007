//! A method.

use portcullis_sdk::tool;

struct Reader;

impl Reader {
    #[tool]
    async fn self_receiver(&self, path: String) -> String {
        path
    }
}

fn main() {}
