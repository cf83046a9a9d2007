//! Step 1: finds the tool by its name.

use std::sync::Arc;

use portcullis_types::{
    ToolCall, ToolError, ToolEvent, ToolName,
    display::near::{near, similarity},
};

use super::{Host, PendingRecord};
use crate::{
    call::{Caller, random_id},
    registered::RegisteredTool,
    table::ToolTable,
};

/// The most names that a refusal suggests.
const MAX_SUGGESTIONS: usize = 3;

/// A call whose tool is known.
#[derive(Debug)]
pub(crate) struct Resolved {
    call: ToolCall,
    tool: Arc<RegisteredTool>,
}

impl Resolved {
    pub(super) fn into_parts(self) -> (ToolCall, Arc<RegisteredTool>) {
        (self.call, self.tool)
    }
}

/// Finds the tool.
pub(crate) fn resolve(
    mut call: ToolCall,
    host: &Host,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<Resolved, ToolError> {
    caller.emit(&ToolEvent::Requested {
        call_id: call.id.clone(),
        tool: call.tool.clone(),
        arguments: call.arguments.clone(),
    });
    let tools = host.tools.snapshot();
    let Some(tool) = tools.get(call.tool.as_str()) else {
        return Err(match tools.lost(call.tool.as_str()) {
            Some(name) => unavailable_tool_error(name),
            None => unknown_tool_error(&tools, &call.tool),
        });
    };
    if !tool.steps().is_empty() {
        // The rows of the steps carry the same operation id.
        pending_record.call.operation_id.get_or_insert_with(|| random_id("op").into());
    }
    if call.tool != tool.decl().name {
        // The call used an alias. From here on the canonical name is judged, shown and recorded.
        call.tool.clone_from(&tool.decl().name);
        pending_record.call.tool = call.tool.as_str().into();
    }
    pending_record.call.confinement = Some(tool.confinement());
    pending_record.call.module_sha256 = tool.module().map(|module| module.digest().to_string().into());
    Ok(Resolved { call, tool: Arc::clone(tool) })
}

/// The error for a tool whose module is missing or unusable.
fn unavailable_tool_error(name: &ToolName) -> ToolError {
    ToolError::unavailable(format!("the module of tool `{name}` is missing or cannot be used"))
        .with_code("module_unavailable")
        .with_operator_detail("`portcullis tools` says which modules are refused, and why")
}

fn unknown_tool_error(tools: &ToolTable, name: &str) -> ToolError {
    let short_name: String = name.chars().take(64).collect();
    let error = ToolError::not_found(format!("no tool is named `{}`", short_name.escape_default()))
        .with_code("unknown_tool");
    let shown_tools = tools.iter().filter(|tool| !tool.meta().hidden).map(|tool| tool.decl().name.as_str());
    let near_tools = near(shown_tools, |tool_name| similarity(name, tool_name));
    let names: Vec<String> =
        near_tools.iter().take(MAX_SUGGESTIONS).map(|name| format!("`{name}`")).collect();
    if names.is_empty() { error } else { error.with_hint(format!("did you mean {}?", names.join(", "))) }
}
