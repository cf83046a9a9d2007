//! The default tools of a registry.

use std::sync::Arc;

use portcullis_types::Tool;

use super::{Arithmetic, EchoTool, FailingTool, GetCurrentTime};

/// The default tools that serve as examples and in tests. `portcullis` does not offer them to models unless
/// the policy enables them by name.
pub const EXAMPLES: &[&str] = &["add", "subtract", "multiply", "divide", "echo", "failing_tool"];

/// Returns the tools without dependencies: time, echo, arithmetic, and `failing_tool`, which shows how
/// failures are reported. `output_read` needs a store, and is added when the registry is built.
#[must_use]
pub fn default_tools() -> Vec<Arc<dyn Tool>> {
    let mut tools = tools_for_models();
    tools.insert(2, Arc::new(FailingTool::default()));
    tools
}

/// Returns the tools of [`default_tools`] that are useful to a model: all except `failing_tool`.
#[must_use]
pub fn tools_for_models() -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(GetCurrentTime), Arc::new(EchoTool)];
    tools.extend(Arithmetic::ALL.map(|operation| Arc::new(operation) as Arc<dyn Tool>));
    tools
}

#[cfg(test)]
mod tests {
    use portcullis_types::SafetyTier;

    use super::*;
    use crate::arguments::ArgumentSchema;

    #[test]
    fn the_shipped_tools_are_harmless_and_strict() {
        let tools = default_tools();
        let names: Vec<_> = tools.iter().map(|tool| tool.schema().name).collect();
        let expected = ["get_current_time", "echo", "failing_tool", "add", "subtract", "multiply", "divide"];
        assert_eq!(names, expected);
        assert!(EXAMPLES.iter().all(|example| expected.contains(example)));
        for tool in tools {
            let decl = tool.schema();
            assert_eq!(tool.safety_tier(), SafetyTier::ReadOnly);
            assert!(decl.parameters.denies_unknown() && decl.description.is_some());
            for (name, property) in decl.parameters.as_value()["properties"].as_object().expect("object") {
                assert!(property["description"].is_string(), "{}.{name}", decl.name);
            }
            ArgumentSchema::compile(&decl.parameters).expect("compiles");
        }
    }
}
