//! Raw identifiers of a function and of parameters.

use portcullis_sdk::{testing::call, tool};

/// Is named by a keyword.
#[tool]
async fn r#type(r#match: String, mut r#in: String) -> String {
    r#in.push_str(&r#match);
    r#in
}

fn main() {
    let decl = __tool_function_decl_type();
    assert_eq!(decl.name, "type");
    assert_eq!(decl.parameters.as_value()["required"], portcullis_sdk::serde_json::json!(["match", "in"]));
    let output = call(&type_tool(), r#"{"match":"b","in":"a"}"#).unwrap();
    assert_eq!(output.joined_text(), "ab");
    let _: Type = type_tool();
}
