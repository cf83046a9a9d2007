//! An agent's inbox, goals, memories and plans.

use std::sync::Arc;

use axum::{Json, extract::State};
use portcullis_store::NoteKind;

use super::extract::{Paging, Path, Query, age_cursor, by_age, by_ordinal};
use crate::{
    access::Identity,
    error::{ApiError, ErrorBody},
    from_store,
    resource::{InboxItem, Listing, Note},
    state::GatewayState,
};

/// The entries of an agent's inbox that no run has taken yet, in order.
#[utoipa::path(get, path = "/api/agents/{agentId}/inbox", params(("agentId" = String, Path), Paging), responses(
    (status = 200, body = Listing<InboxItem>), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn inbox(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(agent): Path<String>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listing<InboxItem>>, ApiError> {
    ensure_own(&state, &caller, &agent).await?;
    let page = state.store.inbox(&agent, by_ordinal("after", paging.limit, paging.after.as_deref())?).await?;
    from_store::listing(page, from_store::inbox_item, |next| next.to_string()).map(Json)
}

/// The goals of an agent.
#[utoipa::path(get, path = "/api/agents/{agentId}/goals", params(("agentId" = String, Path), Paging), responses(
    (status = 200, body = Listing<Note>), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn goals(
    state: State<Arc<GatewayState>>,
    caller: Identity,
    path: Path<String>,
    query: Query<Paging>,
) -> Result<Json<Listing<Note>>, ApiError> {
    notes(state, caller, path, query, NoteKind::Goal).await
}

/// The memories of an agent.
#[utoipa::path(get, path = "/api/agents/{agentId}/memories", params(("agentId" = String, Path), Paging), responses(
    (status = 200, body = Listing<Note>), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn memories(
    state: State<Arc<GatewayState>>,
    caller: Identity,
    path: Path<String>,
    query: Query<Paging>,
) -> Result<Json<Listing<Note>>, ApiError> {
    notes(state, caller, path, query, NoteKind::Memory).await
}

/// The plans of an agent.
#[utoipa::path(get, path = "/api/agents/{agentId}/plans", params(("agentId" = String, Path), Paging), responses(
    (status = 200, body = Listing<Note>), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn plans(
    state: State<Arc<GatewayState>>,
    caller: Identity,
    path: Path<String>,
    query: Query<Paging>,
) -> Result<Json<Listing<Note>>, ApiError> {
    notes(state, caller, path, query, NoteKind::Plan).await
}

async fn notes(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(agent): Path<String>,
    Query(paging): Query<Paging>,
    kind: NoteKind,
) -> Result<Json<Listing<Note>>, ApiError> {
    ensure_own(&state, &caller, &agent).await?;
    let page = state.store.notes(&agent, kind, by_age(paging.limit, paging.after.as_deref())?).await?;
    from_store::listing(page, from_store::note, age_cursor).map(Json)
}

/// Allows only the operator and the agent itself. The inbox and the notes of an agent can contain texts from
/// spaces that a user may not see.
async fn ensure_own(state: &GatewayState, caller: &Identity, agent: &str) -> Result<(), ApiError> {
    if caller.user().is_some() {
        return Err(ApiError::not_found("agent", agent));
    }
    caller.ensure_sees_agent(state, agent).await
}
