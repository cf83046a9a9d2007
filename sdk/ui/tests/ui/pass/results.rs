//! Every type of result, and every error that converts.

use portcullis_sdk::{Json, ToolError, ToolErrorKind, ToolOutput, serde_json, testing::call, tool};

/// Nothing.
#[tool]
async fn unit() {}

/// A text.
#[tool]
async fn text() -> String {
    "text".to_owned()
}

/// An output.
#[tool]
async fn output() -> ToolOutput {
    ToolOutput::text("output").with_details(serde_json::json!(1))
}

/// Data.
#[tool]
async fn data() -> Json<Vec<u8>> {
    Json(vec![1, 2])
}

/// Data, or an error.
#[tool]
async fn fallible() -> Result<Json<u8>, ToolError> {
    Ok(Json(1))
}

#[derive(Debug)]
struct MyError;

impl From<MyError> for ToolError {
    fn from(_: MyError) -> Self {
        ToolError::not_found("mine")
    }
}

/// An error of the author's.
#[tool]
async fn own_error() -> Result<(), MyError> {
    Err(MyError)
}

/// A text for an error.
#[tool]
async fn text_error() -> Result<(), String> {
    Err("told".to_owned())
}

/// An error of the standard library.
#[tool]
async fn io_error() -> Result<String, std::io::Error> {
    Err(std::io::Error::other("secret"))
}

fn main() {
    assert_eq!(call(&unit_tool(), "{}"), Ok(ToolOutput::default()));
    assert_eq!(call(&text_tool(), "{}").unwrap().joined_text(), "text");
    assert_eq!(call(&output_tool(), "{}").unwrap().details, 1);
    assert_eq!(call(&data_tool(), "{}").unwrap().structured, Some(serde_json::json!([1, 2])));
    assert_eq!(call(&fallible_tool(), "{}").unwrap().joined_text(), "1");
    assert_eq!(call(&own_error_tool(), "{}"), Err(ToolError::not_found("mine")));
    assert_eq!(call(&text_error_tool(), "{}"), Err(ToolError::failed("told")));
    let error = call(&io_error_tool(), "{}").unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Internal);
    assert!(!error.to_string().contains("secret"));
}
