//! The results of a build: the known names, the missing tools, and the refused modules.

use portcullis_policy::KnownTools;
use portcullis_types::ToolName;

use crate::{
    modules::{Pins, RefusedModule},
    tool_table::ToolTable,
};

/// Collects the names that policy entries may have: registered tools, steps, approved tools, and tools of
/// refused modules.
pub(super) fn known_tools(
    tools: &ToolTable,
    steps: &ToolTable,
    pins: &Pins,
    refused: &[RefusedModule],
) -> KnownTools {
    let mut known_tools = KnownTools::shipped();
    for tool in tools.iter().chain(steps.iter()) {
        known_tools.add(&tool.descriptor().name);
        tool.aliases().iter().for_each(|alias| known_tools.add_alias(alias, &tool.descriptor().name));
    }
    pins.tools()
        .chain(refused.iter().flat_map(|module| &module.tools))
        .for_each(|name| known_tools.add(name));
    if refused.iter().any(|module| module.tools.is_empty()) {
        known_tools.add_unreadable();
    }
    known_tools
}

/// Lists the expected tools that are not registered: approved tools, and tools of refused modules.
pub(super) fn missing_tools(tools: &ToolTable, pins: &Pins, refused: &[RefusedModule]) -> Vec<ToolName> {
    let names = pins.tools().chain(refused.iter().flat_map(|module| &module.tools));
    names.filter(|name| tools.get(name.as_str()).is_none()).cloned().collect()
}

/// Logs the refused modules.
pub(super) fn log_refusals(refused: &[RefusedModule]) {
    for module in refused {
        let error = module.error() as &dyn std::error::Error;
        tracing::warn!(module = module.name(), error, "a foreign module is refused");
    }
}
