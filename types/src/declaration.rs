//! The declaration that a module prints when it is run with `describe`.

use serde::{Deserialize, Serialize};

use crate::{ArgumentRole, FunctionDecl, JsonSchema, SafetyTier, ToolMeta, ToolPolicy};

/// The declarations of a module: its answer to `describe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declarations {
    /// The version of the frames: [`crate::FRAME_VERSION`].
    pub v: u32,
    /// The module's tools.
    pub tools: Vec<ToolDeclaration>,
}

/// A tool's declaration within a module. A declaration only requests; the policy decides what to grant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDeclaration {
    /// The tool's name.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// A text for the model that says what the tool does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The schema of the tool's arguments.
    pub parameters: JsonSchema,
    /// The schema of the tool's structured result, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<JsonSchema>,
    /// The safety tier; `None` if the author did not declare one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<SafetyTier>,
    /// The tool's own approval requirement, in addition to the policy's.
    #[serde(default)]
    pub policy: ToolPolicy,
    /// The timeout of a call, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The arguments that are paths, URLs or commands.
    #[serde(default)]
    pub roles: Vec<ArgumentRole>,
    /// The profile that the author suggests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The hosts that the tool requests access to.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Hints for the registry.
    #[serde(default, skip_serializing_if = "ToolMeta::is_empty")]
    pub meta: ToolMeta,
}

impl ToolDeclaration {
    /// Returns the part of the declaration for a model.
    #[must_use]
    pub fn function_decl(&self) -> FunctionDecl {
        FunctionDecl {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_declaration_is_a_name_and_a_schema() {
        let text = r#"{"v":1,"tools":[{"name":"t","parameters":{"type":"object"}}]}"#;
        let declarations: Declarations = serde_json::from_str(text).expect("decodes");
        let tool = &declarations.tools[0];
        assert_eq!((tool.tier, tool.policy, tool.timeout_ms), (None, ToolPolicy::Auto, None));
        assert!(tool.meta.is_empty());
        assert_eq!(serde_json::to_value(tool).expect("encodes").get("meta"), None);
        assert!(serde_json::from_str::<Declarations>(&text.replace("name", "nome")).is_err());
    }
}
