//! Messages of a space.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use portcullis_runs::now;
use portcullis_store::{Author, MessageKind, MessageStatus, NewMessage, StoreError};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::extract::{Body, Path, Query, by_ordinal};
use crate::{
    access::Identity,
    builtins,
    error::{ApiError, ErrorBody},
    from_store,
    resource::{Listing, Message},
    state::{GatewayState, new_id},
};

/// The maximum number of characters of a message.
pub(super) const MAX_TEXT_CHARS: usize = builtins::MAX_TEXT_CHARS;

/// The maximum length of a search text, in characters.
pub(super) const MAX_SEARCH: usize = 200;

/// The filter of a list of messages.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageQuery {
    /// The number of items: 1 to 1,000. Default: 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The cursor of the page before: older messages follow.
    before: Option<String>,
    /// Only messages with all of these words.
    #[param(max_length = 200)]
    search: Option<String>,
}

/// A message that is sent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SentMessage {
    /// 1 to 32,768 characters.
    #[schema(min_length = 1, max_length = 32768)]
    text: String,
    /// The message of the same space that this one answers.
    reply_to: Option<String>,
}

/// The messages of a space, the newest first.
#[utoipa::path(get, path = "/api/spaces/{spaceId}/messages", params(("spaceId" = String, Path), MessageQuery), responses(
    (status = 200, body = Listing<Message>), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn list(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(space): Path<String>,
    Query(query): Query<MessageQuery>,
) -> Result<Json<Listing<Message>>, ApiError> {
    caller.ensure_sees_space(&state, &space).await?;
    state.store.space(&space).await?;
    let search = query.search.as_deref().filter(|search| !search.trim().is_empty());
    if search.is_some_and(|search| search.chars().count() > MAX_SEARCH) {
        return Err(ApiError::invalid("search", format!("a search has at most {MAX_SEARCH} characters")));
    }
    let page = by_ordinal("before", query.limit, query.before.as_deref())?;
    let page = state.store.space_messages(&space, search, page).await?;
    from_store::listing(page, |message| Ok(from_store::message(message)?), |next| next.to_string()).map(Json)
}

/// Sends a message as the caller, who is a member. The space's agents get it in their inboxes.
#[utoipa::path(post, path = "/api/spaces/{spaceId}/messages", params(("spaceId" = String, Path)), request_body = SentMessage, responses(
    (status = 201, body = Message), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody), (status = 429, body = ErrorBody)))]
pub(super) async fn create(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(space): Path<String>,
    Body(sent): Body<SentMessage>,
) -> Result<(StatusCode, Json<Message>), ApiError> {
    let Some(user) = caller.user() else {
        return Err(ApiError::forbidden("users send messages here; an agent sends them in its runs"));
    };
    caller.ensure_sees_space(&state, &space).await?;
    // PostgreSQL cannot store NUL.
    if !(1..=MAX_TEXT_CHARS).contains(&sent.text.chars().count()) || sent.text.contains('\0') {
        let rule = format!("a message has 1 to {MAX_TEXT_CHARS} characters, none of them NUL");
        return Err(ApiError::invalid("text", rule));
    }
    if let Some(reply_to) = &sent.reply_to {
        match state.store.space_message(reply_to).await {
            // Return the same error as for a missing message, because the caller may not see the other space.
            Ok(message) if message.space != space => {
                return Err(ApiError::not_found("message", reply_to));
            }
            Ok(message) if message.kind == MessageKind::Tool => {
                return Err(ApiError::conflict("a message of a tool cannot be replied to"));
            }
            Ok(_) => {}
            Err(StoreError::NotFound { .. }) => return Err(ApiError::not_found("message", reply_to)),
            Err(error) => return Err(error.into()),
        }
    }
    // Count the message after all checks, so that a refused one does not use up the allowance.
    state.allowance.admit(user)?;
    let author = state.store.participant(user).await?;
    let message = NewMessage {
        id: new_id("msg")?,
        space,
        author: Author { id: author.id, kind: author.kind, name: author.name },
        kind: MessageKind::Text,
        text: sent.text,
        reply_to: sent.reply_to,
        status: MessageStatus::Complete,
        call: None,
        metadata: None,
        created: now(),
    };
    let posted = builtins::post(&state, message).await?;
    Ok((StatusCode::CREATED, Json(from_store::message(posted)?)))
}
