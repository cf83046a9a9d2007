//! Users and agents.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use portcullis_runs::now;
use portcullis_store::{
    self as store, NewParticipant, Participant, ParticipantKind, ParticipantUpdate, RunFilter, StoreError,
};
use portcullis_tools::policy::gateway_names;
use portcullis_types::ToolName;
use serde::Deserialize;
use utoipa::ToSchema;

use super::extract::{Body, Paging, Path, Query, age_cursor, by_age, name};
use crate::{
    AGENT_PREFIX, USER_PREFIX,
    access::{Identity, TokenKind, VisibleRuns},
    agent_servers::AgentServers,
    agent_tool,
    capabilities::AgentCapabilities,
    error::{ApiError, ErrorBody},
    from_store,
    resource::{Agent, AgentDefinition, AgentStatus, Listing, User},
    state::{GatewayState, new_id},
};

/// The maximum length of instructions, in bytes: 64 KiB.
pub(super) const MAX_INSTRUCTIONS_BYTES: usize = 64 * 1024;

/// The maximum length of the name of a model, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// A user that is added.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUser {
    /// 1 to 80 characters, none of them a control character.
    #[schema(min_length = 1, max_length = 80)]
    name: String,
}

/// The users, the newest first.
#[utoipa::path(get, path = "/api/users", params(Paging), responses(
    (status = 200, body = Listing<User>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn list_users(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Query(paging): Query<Paging>,
) -> Result<Json<Listing<User>>, ApiError> {
    caller.ensure_admin()?;
    let page = by_age(paging.limit, paging.after.as_deref())?;
    let page = state.store.participants(Some(ParticipantKind::User), page).await?;
    from_store::listing(page, |user| Ok(from_store::user(user)), age_cursor).map(Json)
}

/// Adds a user.
#[utoipa::path(post, path = "/api/users", request_body = NewUser, responses(
    (status = 201, body = User), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 422, body = ErrorBody)))]
pub(super) async fn create_user(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Body(new): Body<NewUser>,
) -> Result<(StatusCode, Json<User>), ApiError> {
    caller.ensure_admin()?;
    let user = NewParticipant {
        id: new_id(USER_PREFIX.trim_end_matches('_'))?,
        kind: ParticipantKind::User,
        name: name(&new.name)?,
        definition: store::Json::of(&serde_json::json!({}))?,
        created: now(),
    };
    let id = user.id.clone();
    state.store.create_participant(user).await?;
    Ok((StatusCode::CREATED, Json(from_store::user(state.store.participant(&id).await?))))
}

/// The agents, the newest first. The operator sees all, a user those with a space in common.
#[utoipa::path(get, path = "/api/agents", params(Paging), responses(
    (status = 200, body = Listing<Agent>), (status = 401, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn list_agents(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Query(paging): Query<Paging>,
) -> Result<Json<Listing<Agent>>, ApiError> {
    let page = by_age(paging.limit, paging.after.as_deref())?;
    let page = state.store.participants(Some(ParticipantKind::Agent), page).await?;
    let mut visible = VisibleRuns::new(&state, &caller);
    let mut items = Vec::new();
    for agent in page.items {
        // No run has an empty id, so the token of a run sees no agents.
        if visible.can_see("", &agent.id).await? {
            items.push(with_status(&state, agent)?);
        }
    }
    Ok(Json(Listing { items, next: page.next.map(age_cursor) }))
}

/// Adds an agent.
#[utoipa::path(post, path = "/api/agents", request_body = AgentDefinition, responses(
    (status = 201, body = Agent), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 422, body = ErrorBody)))]
pub(super) async fn create_agent(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Body(definition): Body<AgentDefinition>,
) -> Result<(StatusCode, Json<Agent>), ApiError> {
    caller.ensure_admin()?;
    check(&state, &definition)?;
    let agent = NewParticipant {
        id: new_id(AGENT_PREFIX.trim_end_matches('_'))?,
        kind: ParticipantKind::Agent,
        name: name(&definition.name)?,
        definition: store::Json::of(&definition)?,
        created: now(),
    };
    let id = agent.id.clone();
    state.store.create_participant(agent).await?;
    Ok((StatusCode::CREATED, Json(with_status(&state, state.store.participant(&id).await?)?)))
}

/// An agent.
#[utoipa::path(get, path = "/api/agents/{agentId}", params(("agentId" = String, Path)), responses(
    (status = 200, body = Agent), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn get_agent(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Json<Agent>, ApiError> {
    caller.ensure_sees_agent(&state, &id).await?;
    with_status(&state, state.store.participant(&id).await?).map(Json)
}

/// Replaces the definition of an agent. The next cycle uses it.
#[utoipa::path(put, path = "/api/agents/{agentId}", params(("agentId" = String, Path)), request_body = AgentDefinition, responses(
    (status = 200, body = Agent), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn update_agent(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
    Body(definition): Body<AgentDefinition>,
) -> Result<Json<Agent>, ApiError> {
    caller.ensure_admin()?;
    let agent = agent(&state, &id).await?;
    check(&state, &definition)?;
    // The store compares the version, so it refuses to overwrite a concurrent change.
    let update = ParticipantUpdate {
        id: id.clone(),
        version: agent.version,
        name: name(&definition.name)?,
        definition: store::Json::of(&definition)?,
        updated: now(),
    };
    state.store.update_participant(update).await?;
    with_status(&state, state.store.participant(&id).await?).map(Json)
}

/// Removes an agent: its runs are cancelled, its tokens are refused, and its messages stay.
#[utoipa::path(delete, path = "/api/agents/{agentId}", params(("agentId" = String, Path)), responses(
    (status = 204), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn remove_agent(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    caller.ensure_admin()?;
    agent(&state, &id).await?;
    // Remove the participant first, so that no new cycle begins while its runs are cancelled.
    state.store.remove_participant(&id, now()).await?;
    // Remove tokens that were added during the removal too.
    state.store.remove_tokens_of(TokenKind::Agent.as_str(), &id).await?;
    state.stream_accesses.recheck();
    let filter = RunFilter { agent: Some(id.clone()), is_open: Some(true), ..RunFilter::default() };
    let open = portcullis_runs::all_rows(|page| state.store.runs(filter.clone(), page)).await?;
    for run in open {
        match state.store.request_cancel(&run.id, now()).await {
            // A run that has ended or was removed in the meantime needs no cancellation.
            Ok(()) | Err(StoreError::Ended { .. } | StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the agent with this id.
async fn agent(state: &GatewayState, id: &str) -> Result<Participant, ApiError> {
    let participant = state.store.participant(id).await?;
    if participant.kind == ParticipantKind::Agent {
        Ok(participant)
    } else {
        Err(ApiError::not_found("agent", id))
    }
}

fn with_status(state: &GatewayState, agent: Participant) -> Result<Agent, ApiError> {
    let status = if state.cycles.is_active(&agent.id) { AgentStatus::Running } else { AgentStatus::Idle };
    from_store::agent(agent, status)
}

/// Checks the whole definition, so that no cycle fails because of it.
fn check(state: &GatewayState, definition: &AgentDefinition) -> Result<(), ApiError> {
    if definition.instructions.len() > MAX_INSTRUCTIONS_BYTES {
        let rule = format!("instructions have at most {MAX_INSTRUCTIONS_BYTES} bytes");
        return Err(ApiError::invalid("instructions", rule));
    }
    if let Some(model) = &definition.model
        && (model.is_empty() || model.len() > MAX_MODEL_BYTES || model.chars().any(char::is_control))
    {
        return Err(ApiError::invalid(
            "model",
            "the name of a model has 1 to 256 bytes, no control character",
        ));
    }
    AgentCapabilities::read(definition.capabilities.as_deref())?;
    let tools = agent_tool::read(&definition.tools)?;
    refuse_built_ins("tools", tools.keys().map(String::as_str))?;
    // Add the tools to a fork, so that the check has no effect.
    let registry = state.registry.fork();
    agent_tool::add(&tools, &registry)?;
    let servers = AgentServers::read(definition.mcp.as_ref())?;
    refuse_built_ins("mcp", servers.names().map(ToolName::as_str))?;
    servers.ensure_can_be_added(&registry)
}

fn refuse_built_ins<'n>(key: &str, mut names: impl Iterator<Item = &'n str>) -> Result<(), ApiError> {
    // Built-in tools are added per cycle, so this registry does not have their names.
    match names.find(|name| gateway_names().any(|known| known == *name)) {
        Some(taken) => Err(ApiError::invalid(key, format!("`{taken}` is a built-in tool"))),
        None => Ok(()),
    }
}
