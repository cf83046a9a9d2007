//! Spaces and their members.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use portcullis_runs::now;
use portcullis_store::{Change, ChangeResult, NewSpace, ParticipantKind};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::extract::{Body, Paging, Path, Query, age_cursor, by_age, name};
use crate::{
    access::Identity,
    error::{ApiError, ErrorBody},
    from_store,
    resource::{Listing, Member, Space},
    state::{GatewayState, event, new_id},
    topic,
};

/// A space that is added.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AddedSpace {
    /// 1 to 80 characters, none of them a control character.
    #[schema(min_length = 1, max_length = 80)]
    name: String,
}

/// Lists the spaces that the caller may see, the newest first. The operator sees all spaces. A user or an agent sees the
/// spaces that it is a member of. The token of a run sees none.
#[utoipa::path(get, path = "/api/spaces", params(Paging), responses(
    (status = 200, body = Listing<Space>), (status = 401, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn list(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Query(paging): Query<Paging>,
) -> Result<Json<Listing<Space>>, ApiError> {
    let member = match &caller {
        Identity::Admin => None,
        Identity::User(id) | Identity::Agent(id) => Some(id.as_str()),
        Identity::Run { .. } => return Ok(Json(Listing { items: Vec::new(), next: None })),
    };
    let page = state.store.spaces(member, by_age(paging.limit, paging.after.as_deref())?).await?;
    from_store::listing(page, |space| Ok(from_store::space(space)), age_cursor).map(Json)
}

/// Adds a space. A user who adds one is its first member.
#[utoipa::path(post, path = "/api/spaces", request_body = AddedSpace, responses(
    (status = 201, body = Space), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 422, body = ErrorBody)))]
pub(super) async fn create(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Body(new): Body<AddedSpace>,
) -> Result<(StatusCode, Json<Space>), ApiError> {
    let member = match &caller {
        Identity::Admin => None,
        Identity::User(id) => Some(id.as_str()),
        _ => return Err(ApiError::forbidden("agents cannot add spaces")),
    };
    let space = NewSpace { id: new_id("spc")?, name: name(&new.name)?, created: now() };
    let id = space.id.clone();
    state.store.create_space(space).await?;
    if let Some(member) = member {
        join(&state, &id, member).await?;
    }
    Ok((StatusCode::CREATED, Json(from_store::space(state.store.space(&id).await?))))
}

/// A space.
#[utoipa::path(get, path = "/api/spaces/{spaceId}", params(("spaceId" = String, Path)), responses(
    (status = 200, body = Space), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn get(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Json<Space>, ApiError> {
    caller.ensure_sees_space(&state, &id).await?;
    Ok(Json(from_store::space(state.store.space(&id).await?)))
}

/// Removes a space with its messages. Calls that wait stay, and their results reach their agents.
#[utoipa::path(delete, path = "/api/spaces/{spaceId}", params(("spaceId" = String, Path)), responses(
    (status = 204), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn remove(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    caller.ensure_admin()?;
    state.store.remove_space(&id, &topic::for_space(&id)).await?;
    state.stream_accesses.recheck();
    Ok(StatusCode::NO_CONTENT)
}

/// The members of a space, in the order in which they joined.
#[utoipa::path(get, path = "/api/spaces/{spaceId}/members", params(("spaceId" = String, Path), Paging), responses(
    (status = 200, body = Listing<Member>), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn members(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listing<Member>>, ApiError> {
    caller.ensure_sees_space(&state, &id).await?;
    state.store.space(&id).await?;
    let page = state.store.members(&id, by_age(paging.limit, paging.after.as_deref())?).await?;
    from_store::listing(page, |member| Ok(from_store::member(member)), age_cursor).map(Json)
}

/// Adds a member. The operator adds anyone; a member adds agents that the member may see.
#[utoipa::path(put, path = "/api/spaces/{spaceId}/members/{participantId}",
    params(("spaceId" = String, Path), ("participantId" = String, Path)), responses(
    (status = 204), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn add_member(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path((space, participant)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    caller.ensure_sees_space(&state, &space).await?;
    let added = state.store.participant(&participant).await;
    match caller {
        Identity::Admin => {
            // The operator may learn which ids exist.
            added?;
        }
        Identity::User(_) => {
            // A missing agent and a hidden one give the same error, so that the error does not reveal whether
            // an id exists.
            caller.ensure_sees_agent(&state, &participant).await?;
        }
        _ => return Err(ApiError::forbidden("agents cannot add members")),
    }
    join(&state, &space, &participant).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a member. The operator can remove any member. A user can remove only themselves and agents of their space.
#[utoipa::path(delete, path = "/api/spaces/{spaceId}/members/{participantId}",
    params(("spaceId" = String, Path), ("participantId" = String, Path)), responses(
    (status = 204), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn remove_member(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path((space, participant)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    caller.ensure_sees_space(&state, &space).await?;
    if !state.store.is_member(&space, &participant).await? {
        return Err(ApiError::not_found("member", &participant));
    }
    let kind = state.store.participant(&participant).await?.kind;
    let is_allowed = match &caller {
        Identity::Admin => true,
        Identity::User(id) => *id == participant || kind == ParticipantKind::Agent,
        Identity::Agent(id) => *id == participant,
        Identity::Run { .. } => false,
    };
    if !is_allowed {
        return Err(ApiError::forbidden("a user can remove only themselves and agents"));
    }
    let topics = vec![topic::for_space(&space)];
    // Two callers may remove the same member. Only the removal that changes something writes the event.
    let left = event("member.left", topics, &json!({ "id": participant }))?;
    let changes = vec![
        Change::RemoveMember { space, participant },
        Change::derived(move |applied| {
            let was_member = matches!(applied.last(), Some(ChangeResult::Left { was_member: true }));
            Ok(if was_member { vec![left] } else { Vec::new() })
        }),
    ];
    state.write(changes).await?;
    state.stream_accesses.recheck();
    Ok(StatusCode::NO_CONTENT)
}

async fn join(state: &GatewayState, space: &str, participant: &str) -> Result<(), ApiError> {
    let member = state.store.participant(participant).await?;
    let joined = now();
    let data = json!({ "member": from_store::member(portcullis_store::Member {
        id: member.id,
        kind: member.kind,
        name: member.name,
        joined,
    }) });
    let event = event("member.joined", [topic::for_space(space)], &data)?;
    let changes = vec![
        Change::AddMember { space: space.to_owned(), participant: participant.to_owned(), joined },
        Change::derived(move |applied| {
            let is_new = matches!(applied.last(), Some(ChangeResult::Joined { is_new: true }));
            Ok(if is_new { vec![event] } else { Vec::new() })
        }),
    ];
    state.write(changes).await?;
    Ok(())
}
