//! A tool without parameters.

use portcullis_sdk::{testing::call, tool, Tool};

/// Tells the time.
#[tool]
async fn now() -> &'static str {
    "now"
}

fn main() {
    for text in ["", "{}", r#"{"ignored":1}"#] {
        assert_eq!(call(&now_tool(), text).unwrap().joined_text(), "now");
    }
    let text = portcullis_sdk::serde_json::to_string(&now_tool().schema().parameters).unwrap();
    assert_eq!(text, r#"{"properties":{},"required":[],"type":"object"}"#);
}
