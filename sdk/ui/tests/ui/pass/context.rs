//! The context, in any position, under any name and path.

use portcullis_sdk::{testing::call, tool, ToolContext};

/// Takes the context first.
#[tool]
async fn first(ctx: &ToolContext, path: String) -> String {
    ctx.tool_name.clone() + &path
}

/// Takes the context last.
#[tool]
async fn last(path: String, whatever: &portcullis_sdk::ToolContext) -> String {
    whatever.tool_name.clone() + &path
}

/// Takes only the context.
#[tool]
async fn only(_ctx: &ToolContext) {}

fn main() {
    assert_eq!(call(&first_tool(), r#"{"path":"!"}"#).unwrap().joined_text(), "first!");
    assert_eq!(call(&last_tool(), r#"{"path":"!"}"#).unwrap().joined_text(), "last!");
    assert_eq!(call(&only_tool(), "").unwrap().joined_text(), "");
    let properties = &__tool_function_decl_only().parameters.into_value()["properties"];
    assert_eq!(properties, &portcullis_sdk::serde_json::json!({}));
}
