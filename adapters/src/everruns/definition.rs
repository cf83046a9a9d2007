//! Definitions of tools as JSON, in the form of Everruns.
//!
//! A definition selects code that the program has, and gives it the name, description, parameters and policy
//! that a model and its operator see. It can be registered like any other tool:
//! `ToolRegistry::builder().tool(definition)`.

use std::{sync::Arc, time::Duration};

use portcullis_tools::native::{EchoTool, FailingTool, GetCurrentTime};
use portcullis_types::{
    FunctionDecl, JsonSchema, SafetyTier, Tool, ToolArgs, ToolContext, ToolError, ToolOutput, ToolPolicy,
    async_trait, word_enum,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The definition of a tool: `{"type": "builtin", …}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolDefinition {
    /// A tool whose code is part of the program.
    Builtin(BuiltinTool),
}

/// The definition of a built-in tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltinTool {
    /// The name by which a model calls the tool.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: Value,
    /// The code that runs.
    pub kind: BuiltinToolKind,
    /// Whether a call needs an approval. Default: `auto`.
    #[serde(default)]
    pub policy: ToolPolicy,
}

word_enum! {
    /// The code of a built-in tool.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum BuiltinToolKind {
        /// Tells the time.
        CurrentTime = "current_time",
        /// Returns its message.
        Echo = "echo",
        /// Always fails.
        FailingTool = "failing_tool",
    }
}

impl BuiltinToolKind {
    fn tool(self) -> Arc<dyn Tool> {
        match self {
            Self::CurrentTime => Arc::new(GetCurrentTime),
            Self::Echo => Arc::new(EchoTool),
            Self::FailingTool => Arc::new(FailingTool::default()),
        }
    }
}

impl BuiltinTool {
    /// Returns the shipped definition of a built-in tool.
    #[must_use]
    pub fn shipped(kind: BuiltinToolKind) -> Self {
        let tool = kind.tool();
        let FunctionDecl { name, description, parameters } = tool.schema();
        Self {
            name,
            description: description.unwrap_or_default(),
            parameters: parameters.as_value().clone(),
            kind,
            policy: tool.policy(),
        }
    }
}

impl ToolDefinition {
    fn builtin(&self) -> &BuiltinTool {
        let Self::Builtin(tool) = self;
        tool
    }

    fn code(&self) -> Arc<dyn Tool> {
        self.builtin().kind.tool()
    }
}

#[async_trait]
impl Tool for ToolDefinition {
    fn schema(&self) -> FunctionDecl {
        let BuiltinTool { name, description, parameters, .. } = self.builtin();
        FunctionDecl {
            name: name.clone(),
            description: Some(description.clone()),
            parameters: JsonSchema::new(parameters.clone()),
        }
    }

    async fn execute(&self, args: &str) -> Result<String, ToolError> {
        self.code().execute(args).await
    }

    fn timeout(&self) -> Duration {
        self.code().timeout()
    }

    fn safety_tier(&self) -> SafetyTier {
        self.code().safety_tier()
    }

    fn policy(&self) -> ToolPolicy {
        self.builtin().policy
    }

    async fn call(&self, ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        self.code().call(ctx, args).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clock() -> Value {
        json!({
            "type": "builtin",
            "name": "tellTime",
            "description": "Tells the time.",
            "parameters": {
                "type": "object",
                "properties": {"format": {"type": "string", "description": "iso8601, unix or human"}},
            },
            "kind": "current_time",
            "policy": "requires_approval",
        })
    }

    #[test]
    fn a_definition_survives_a_round_trip() {
        let definition: ToolDefinition = serde_json::from_value(clock()).expect("reads");
        assert_eq!(serde_json::to_value(&definition).expect("writes"), clock());
        for kind in BuiltinToolKind::ALL {
            let definition = ToolDefinition::Builtin(BuiltinTool::shipped(kind));
            let text = serde_json::to_string(&definition).expect("writes");
            assert_eq!(serde_json::from_str::<ToolDefinition>(&text).expect("reads"), definition);
        }
    }

    #[test]
    fn a_missing_policy_is_auto_and_is_written() {
        let mut without = clock();
        without.as_object_mut().expect("an object").remove("policy");
        let definition: ToolDefinition = serde_json::from_value(without).expect("reads");
        assert_eq!(definition.policy(), ToolPolicy::Auto);
        assert_eq!(serde_json::to_value(&definition).expect("writes")["policy"], "auto");
    }

    #[test]
    fn other_types_kinds_and_keys_are_refused() {
        for (key, value, words) in [
            ("type", json!("client_side"), "builtin"),
            ("kind", json!("launch"), "current_time"),
            ("policy", json!("never"), "requires_approval"),
            ("hidden", json!(true), "hidden"),
            ("name", json!(1), "string"),
        ] {
            let mut definition = clock();
            definition[key] = value;
            let error = serde_json::from_value::<ToolDefinition>(definition).expect_err(key).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[tokio::test]
    async fn a_defined_tool_runs_the_code_of_its_kind() {
        let definition: ToolDefinition = serde_json::from_value(clock()).expect("reads");
        assert_eq!(definition.schema().name, "tellTime");
        let text = definition.execute(r#"{"format": "unix"}"#).await.expect("the time");
        assert!(text.contains(|character: char| character.is_ascii_digit()), "{text}");
        let failing = ToolDefinition::Builtin(BuiltinTool::shipped(BuiltinToolKind::FailingTool));
        failing.execute("{}").await.expect_err("always fails");
    }
}
