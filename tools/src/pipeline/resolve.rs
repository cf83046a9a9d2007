//! Step 1: finds the tool by its name.

use std::sync::Arc;

use portcullis_types::{
    ToolCall, ToolError, ToolErrorCode, ToolEvent, ToolName,
    display::near::{near, similarity},
};

use super::{Host, PendingRecord};
use crate::{
    audit::Decision,
    call::{Caller, random_id},
    registered::RegisteredTool,
    tool_table::ToolTable,
};

/// The maximum number of names that a refusal suggests.
const MAX_SUGGESTIONS: usize = 3;

/// The maximum number of the caller's tools that a refusal lists.
const MAX_GIVEN_NAMES: usize = 32;

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
        return Err(match tools.missing_tool(call.tool.as_str()) {
            Some(name) => unavailable_tool_error(name),
            None => unknown_tool_error(&tools, &call.tool, caller),
        });
    };
    if !tool.steps().is_empty() {
        // The rows of the steps carry the same operation id.
        pending_record.row.operation_id.get_or_insert_with(|| random_id("op").into());
    }
    if call.tool != tool.decl().name {
        // The call used an alias. From here on, judge, show and record the canonical name.
        call.tool.clone_from(&tool.decl().name);
        pending_record.row.tool = call.tool.as_str().into();
    }
    pending_record.row.confinement = Some(tool.confinement());
    pending_record.row.module_sha256 = tool.module().map(|module| module.digest().to_string().into());
    if !caller.may_call(&tool.decl().name) {
        pending_record.row.decision = Some(Decision::Deny);
        pending_record.row.rule = Some(GIVEN_TOOLS.into());
        return Err(tool_not_given_error(&tool.decl().name, caller));
    }
    Ok(Resolved { call, tool: Arc::clone(tool) })
}

/// The rule that the audit row shows if the called tool is not on the caller's allowlist.
const GIVEN_TOOLS: &str = "the caller's tools";

/// Returns the error of a tool that is not on the caller's allowlist.
fn tool_not_given_error(name: &str, caller: &Caller) -> ToolError {
    let given = caller.tools.iter().flat_map(|tools| tools.iter());
    let names: Vec<String> = given.take(MAX_GIVEN_NAMES).map(|name| format!("`{name}`")).collect();
    let error = ToolError::denied(format!("you do not have the tool `{name}`"))
        .with_code(ToolErrorCode::ToolNotGiven);
    if names.is_empty() { error } else { error.with_hint(format!("you have {}", names.join(", "))) }
}

/// Returns the error of a tool whose module is missing or unusable.
fn unavailable_tool_error(name: &ToolName) -> ToolError {
    ToolError::unavailable(format!("the module of tool `{name}` is missing or cannot be used"))
        .with_code(ToolErrorCode::ModuleUnavailable)
        .with_operator_detail("`portcullis tools` says which modules are refused, and why")
}

fn unknown_tool_error(tools: &ToolTable, name: &str, caller: &Caller) -> ToolError {
    let short_name: String = name.chars().take(64).collect();
    let error = ToolError::not_found(format!("no tool is named `{}`", short_name.escape_default()))
        .with_code(ToolErrorCode::UnknownTool);
    let shown_tools = tools.iter().filter(|tool| !tool.meta().hidden).map(|tool| tool.decl().name.as_str());
    let shown_tools = shown_tools.filter(|tool_name| caller.may_call(tool_name));
    let near_tools = near(shown_tools, |tool_name| similarity(name, tool_name));
    let names: Vec<String> =
        near_tools.iter().take(MAX_SUGGESTIONS).map(|name| format!("`{name}`")).collect();
    if names.is_empty() { error } else { error.with_hint(format!("did you mean {}?", names.join(", "))) }
}
