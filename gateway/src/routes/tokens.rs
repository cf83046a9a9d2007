//! The identity of the caller, and tokens.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use portcullis_runs::now;
use portcullis_store::{self as store};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{Body, Paging, Path, Query, age_cursor, by_age};
use crate::{
    access::{Identity, TokenKind, token_hash},
    error::{ApiError, ErrorBody},
    from_store,
    resource::{Listing, Token},
    state::{GatewayState, new_id},
};

/// The caller, as its token says.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallerInfo {
    /// `admin`, `user`, `agent` or `run`.
    subject: &'static str,
    /// The id of the user, the agent or the run.
    id: Option<String>,
    name: String,
}

/// The request for a new token.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    /// `admin`, `user`, `agent` or `run`.
    subject: String,
    /// The id of the user, the agent or the run; `None` for `admin`.
    id: Option<String>,
}

/// A token with its secret, which is shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CreatedToken {
    id: String,
    token: String,
}

/// The identity of the caller, as its token says.
#[utoipa::path(get, path = "/api/me", responses(
    (status = 200, body = CallerInfo), (status = 401, body = ErrorBody)))]
pub(super) async fn me(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
) -> Result<Json<CallerInfo>, ApiError> {
    let participant = match &caller {
        Identity::Admin => None,
        Identity::User(id) | Identity::Agent(id) | Identity::Run { agent: id, .. } => {
            Some(state.store.participant(id).await?)
        }
    };
    let name = participant.map_or_else(|| "Operator".to_owned(), |participant| participant.name);
    let (kind, id) = caller.kind_and_id();
    Ok(Json(CallerInfo { subject: kind.as_str(), id: id.map(str::to_owned), name }))
}

/// The tokens, the newest first, without their secrets.
#[utoipa::path(get, path = "/api/tokens", params(Paging), responses(
    (status = 200, body = Listing<Token>), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn list(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Query(paging): Query<Paging>,
) -> Result<Json<Listing<Token>>, ApiError> {
    caller.ensure_admin()?;
    let page = state.store.tokens(by_age(paging.limit, paging.after.as_deref())?).await?;
    from_store::listing(page, |token| Ok(from_store::token(token)), age_cursor).map(Json)
}

/// Makes a token. Only this response has its secret.
#[utoipa::path(post, path = "/api/tokens", request_body = NewToken, responses(
    (status = 201, body = CreatedToken), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn create(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<CreatedToken>), ApiError> {
    caller.ensure_admin()?;
    let Ok(kind) = new.subject.parse() else {
        return Err(ApiError::invalid("subject", "it is one of admin, user, agent, run"));
    };
    let subject = match (kind, new.id) {
        (TokenKind::Admin, None) => None,
        (TokenKind::Admin, Some(_)) => {
            return Err(ApiError::invalid("id", "a token of the operator has no id"));
        }
        (TokenKind::User | TokenKind::Agent | TokenKind::Run, None) => {
            return Err(ApiError::invalid("id", "it is missing"));
        }
        (TokenKind::Run, Some(run)) => Some(state.store.run(&run).await?.summary.id),
        (TokenKind::User | TokenKind::Agent, Some(id)) => {
            let participant = state.store.participant(&id).await?;
            // The kind of a token decides its rights, so it must match the participant's kind.
            if participant.kind.as_str() != kind.as_str() {
                return Err(ApiError::not_found(kind.as_str(), &id));
            }
            Some(id)
        }
    };
    let token = create_token(&state, kind, subject).await?;
    Ok((StatusCode::CREATED, Json(token)))
}

/// Removes a token. Requests with it are refused from now on, and its streams end.
#[utoipa::path(delete, path = "/api/tokens/{tokenId}", params(("tokenId" = String, Path)), responses(
    (status = 204), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn remove(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    caller.ensure_admin()?;
    if state.store.remove_token(&id).await? {
        state.stream_accesses.recheck();
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::not_found("token", &id))
    }
}

async fn create_token(
    state: &GatewayState,
    kind: TokenKind,
    subject: Option<String>,
) -> Result<CreatedToken, ApiError> {
    let (id, token) = (new_id("tok")?, new_id("pct")?);
    let row = store::Token {
        id: id.clone(),
        hash: token_hash(&token),
        subject_kind: kind.as_str().to_owned(),
        subject,
        created: now(),
    };
    state.store.add_token(row).await?;
    Ok(CreatedToken { id, token })
}
