//! The tool `enter_space`: sets the space that the agent is in.

use portcullis_store::PageRequest;
use portcullis_types::ToolError;
use serde_json::{Value, json};

use super::{messages::page_of, store_error};
use crate::cycle::CycleSpace;

/// The maximum number of members in a result.
const MAX_MEMBERS: u32 = 100;

pub(super) async fn enter(cycle: &CycleSpace, args: &Value) -> Result<Value, ToolError> {
    let id = args["spaceId"].as_str().unwrap_or_default();
    ensure_member(cycle, id).await?;
    let store = &cycle.state.store;
    let space = store.space(id).await.map_err(store_error)?;
    let members = store.members(id, PageRequest::first(MAX_MEMBERS)).await.map_err(store_error)?;
    let messages = page_of(cycle, id, args, 0).await?;
    // Enter the space after all reads, so that a failed call changes nothing.
    cycle.enter(Some(id.to_owned()));
    let members: Vec<_> = members
        .items
        .into_iter()
        .map(|member| json!({ "id": member.id, "kind": member.kind.as_str(), "name": member.name }))
        .collect();
    Ok(json!({
        "space": { "id": space.id, "name": space.name },
        "members": members,
        "messages": messages,
    }))
}

/// # Errors
/// A missing space and a space of others give the same error, so that the error does not reveal whether an id
/// exists.
pub(super) async fn ensure_member(cycle: &CycleSpace, space: &str) -> Result<(), ToolError> {
    let is_member = !space.is_empty()
        && cycle.state.store.is_member(space, &cycle.agent.id).await.map_err(store_error)?;
    if is_member {
        return Ok(());
    }
    let message = format!("there is no space `{}` that you are a member of", space.escape_default());
    Err(ToolError::not_found(message))
}
