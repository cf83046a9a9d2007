//! The default tools of a registry.

use std::sync::Arc;

use portcullis_types::Tool;

use super::{Arithmetic, EchoTool, FailingTool, GetCurrentTime};

/// The tools that need nothing else: time, echo, arithmetic, and `failing_tool`, which the core table lists
/// for testing how failures are shown. `output_read` needs a store and is added when the registry is built.
#[must_use]
pub fn default_tools() -> Vec<Arc<dyn Tool>> {
    let mut tools = tools_for_models();
    tools.insert(2, Arc::new(FailingTool::default()));
    tools
}

/// The same without `failing_tool`: the tools that are useful to a model.
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
