//! `echo`: returns its message.

use std::time::Duration;

use portcullis_types::{
    DEFAULT_TIMEOUT, FunctionDecl, JsonSchema, SafetyTier, Tool, ToolArgs, ToolContext, ToolError,
    ToolOutput, async_trait,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{declare, decode, results};

/// Returns its message as `echoed`, with its `length` in characters (Unicode scalar values, not bytes).
#[derive(Debug, Clone, Copy, Default)]
pub struct EchoTool;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EchoArguments {
    message: String,
}

fn echo(args: &str) -> Result<Value, ToolError> {
    let EchoArguments { message } = decode(args)?;
    let length = message.chars().count();
    Ok(json!({ "echoed": message, "length": length }))
}

#[async_trait]
impl Tool for EchoTool {
    fn schema(&self) -> FunctionDecl {
        declare(
            "echo",
            "Returns the message it is given, with its length in characters.",
            &json!({"message": {"type": "string", "description": "The text to return."}}),
            &["message"],
        )
    }

    fn output_schema(&self) -> Option<JsonSchema> {
        Some(results(&json!({
            "echoed": {"type": "string", "description": "The message."},
            "length": {"type": "integer", "minimum": 0, "description": "Its length in characters."},
        })))
    }

    async fn execute(&self, args: &str) -> Result<String, ToolError> {
        echo(args).map(|result| result.to_string())
    }

    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::ReadOnly
    }

    async fn call(&self, _ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        echo(args.text()).map(ToolOutput::structured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_in_characters() {
        let result = echo(r#"{"message":"añ€😀"}"#).expect("echoes");
        assert_eq!(result, json!({"echoed": "añ€😀", "length": 4}));
        assert!(echo(r#"{"message":"a","more":1}"#).is_err());
    }
}
