//! A tool's definition as specification 000 stores it ("Tool Definition Schema").

use serde::{Deserialize, Serialize};

use crate::{JsonSchema, ToolPolicy};

/// A stored definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDefinition {
    /// The origin of the tool.
    #[serde(rename = "type")]
    pub definition_type: DefinitionType,
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The schema of its arguments.
    pub parameters: JsonSchema,
    /// The kind of built-in.
    pub kind: String,
    /// Whether a call needs an approval. Default: `auto`.
    #[serde(default)]
    pub policy: ToolPolicy,
}

/// The origin of a defined tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefinitionType {
    /// Provided by the system.
    Builtin,
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: &str = r#"{"type":"builtin","name":"tool_name","description":"What the tool does","parameters":{"properties":{"param1":{"description":"Parameter description","type":"string"}},"required":["param1"],"type":"object"},"kind":"current_time","policy":"auto"}"#;

    #[test]
    fn a_definition_round_trips_and_a_missing_policy_is_auto() {
        let definition: ToolDefinition = serde_json::from_str(DEFINITION).expect("decodes");
        assert_eq!(serde_json::to_string(&definition).expect("encodes"), DEFINITION);
        let without = DEFINITION.replace(r#","policy":"auto""#, "");
        assert_eq!(serde_json::from_str::<ToolDefinition>(&without).expect("decodes"), definition);
        let approval = DEFINITION.replace("auto", "requires_approval");
        let approval: ToolDefinition = serde_json::from_str(&approval).expect("decodes");
        assert_eq!(approval.policy, ToolPolicy::RequiresApproval);
    }
}
