//! The built-in tools of every agent (specification 003): spaces, messages, goals, memories, plans. They are never
//! visible, and an agent's definition cannot change them.

mod arguments;
mod messages;
mod notes;
mod spaces;

use std::{sync::Arc, time::Duration};

use portcullis_store::{NoteKind, StoreError};
use portcullis_tools::{RegistryError, ToolRegistry};
use portcullis_types::{
    FunctionDecl, JsonSchema, SafetyTier, Tool, ToolArgs, ToolContext, ToolError, ToolMeta, ToolOutput,
    async_trait,
};
use serde_json::{Value, json};

use crate::cycle::CycleSpace;

pub(crate) use arguments::MAX_TEXT_CHARS;
pub(crate) use messages::post;

/// The tool that enters a space.
pub(crate) const ENTER_SPACE: &str = "enter_space";

/// The tool that leaves a space.
pub(crate) const LEAVE_SPACE: &str = "leave_space";

/// The tool that sends a message.
pub(crate) const SEND_MESSAGE: &str = "send_message";

/// The timeout of a built-in tool, which only reads or writes the store.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The action of a built-in tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    EnterSpace,
    LeaveSpace,
    SendMessage,
    ReadMessages,
    Skip,
    SetNotes(NoteKind),
    DeleteNotes(NoteKind),
    GetPlans,
}

/// The built-in tools, by name.
const ALL: [(&str, Action); 12] = [
    (ENTER_SPACE, Action::EnterSpace),
    (LEAVE_SPACE, Action::LeaveSpace),
    (SEND_MESSAGE, Action::SendMessage),
    ("read_messages", Action::ReadMessages),
    ("skip", Action::Skip),
    ("set_goals", Action::SetNotes(NoteKind::Goal)),
    ("delete_goals", Action::DeleteNotes(NoteKind::Goal)),
    ("set_memories", Action::SetNotes(NoteKind::Memory)),
    ("delete_memories", Action::DeleteNotes(NoteKind::Memory)),
    ("set_plans", Action::SetNotes(NoteKind::Plan)),
    ("delete_plans", Action::DeleteNotes(NoteKind::Plan)),
    ("get_plans", Action::GetPlans),
];

/// A built-in tool in one cycle.
struct GatewayTool {
    name: &'static str,
    action: Action,
    space: Arc<CycleSpace>,
}

/// Adds the built-in tools of a cycle to its registry.
///
/// # Errors
/// [`RegistryError`] if another tool has one of the names.
pub(crate) fn add(space: &Arc<CycleSpace>, registry: &ToolRegistry) -> Result<(), RegistryError> {
    ALL.into_iter().try_for_each(|(name, action)| {
        registry.add_gateway_tool(Arc::new(GatewayTool { name, action, space: Arc::clone(space) }))
    })
}

impl GatewayTool {
    async fn run(&self, ctx: &ToolContext, args: &Value) -> Result<Value, ToolError> {
        let space = &*self.space;
        match self.action {
            Action::EnterSpace => spaces::enter(space, args).await,
            Action::LeaveSpace => Ok(json!({ "left": space.enter(None) })),
            Action::SendMessage => messages::send(space, &ctx.call_id, args).await,
            Action::ReadMessages => messages::read(space, args).await,
            Action::Skip => Ok(json!({ "skipped": true })),
            Action::SetNotes(kind) => notes::set(space, kind, &ctx.idempotency_key, args).await,
            Action::DeleteNotes(kind) => notes::delete(space, kind, args).await,
            Action::GetPlans => notes::plans(space).await,
        }
    }
}

#[async_trait]
impl Tool for GatewayTool {
    fn schema(&self) -> FunctionDecl {
        let (description, parameters) = arguments::declaration(self.action);
        FunctionDecl {
            name: self.name.to_owned(),
            description: Some(description.to_owned()),
            parameters: JsonSchema::new(parameters),
        }
    }

    async fn execute(&self, _args: &str) -> Result<String, ToolError> {
        // The registry calls `call`. Without a context, the call is unknown.
        Err(ToolError::internal("a built-in tool needs the context of its call"))
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn safety_tier(&self) -> SafetyTier {
        match self.action {
            Action::ReadMessages | Action::GetPlans | Action::Skip => SafetyTier::ReadOnly,
            _ => SafetyTier::SideEffecting,
        }
    }

    fn meta(&self) -> ToolMeta {
        // The ids of messages and notes are derived from the call, so a repeated call writes the same rows.
        ToolMeta { idempotent: true, ..ToolMeta::default() }
    }

    async fn call(&self, ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        self.run(ctx, args.value()).await.map(ToolOutput::structured)
    }
}

/// Converts a store's error into the error of a call.
fn store_error(error: StoreError) -> ToolError {
    match error {
        StoreError::NotFound { .. } => ToolError::not_found(error.to_string()),
        StoreError::Limit(_) => ToolError::resource_limit(error.to_string()),
        // The cause is for the operator, because it can name hosts and tables.
        error => ToolError::unavailable("the gateway's store is unavailable")
            .with_operator_detail(portcullis_types::error_chain(&error)),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_tools::policy::gateway_names;

    use super::*;

    #[test]
    fn the_policy_knows_the_built_in_tools() {
        let mut names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert_eq!(names, gateway_names().collect::<Vec<_>>());
    }

    #[test]
    fn the_tiers_are_those_that_the_policy_knows() {
        for descriptor in portcullis_tools::policy::gateway_tools() {
            let action = ALL.iter().find(|(name, _)| *name == descriptor.name.as_str()).expect("known").1;
            let reads = matches!(action, Action::ReadMessages | Action::GetPlans | Action::Skip);
            let expected = if reads { SafetyTier::ReadOnly } else { SafetyTier::SideEffecting };
            assert_eq!(descriptor.declared_tier, Some(expected), "{}", descriptor.name);
        }
    }
}
