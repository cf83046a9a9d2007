//! A future that is not `Send`.

use portcullis_sdk::tool;

/// Documented.
#[tool]
async fn not_send(path: String) -> String {
    let shared = std::rc::Rc::new(path);
    std::future::ready(()).await;
    shared.to_string()
}

fn main() {}
