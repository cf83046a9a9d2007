//! Streams of events.

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{Path, Query};
use crate::{
    access::TokenHash,
    error::{ApiError, ErrorBody},
    sse,
    state::GatewayState,
    stream_access::{StreamAccess, StreamSubject},
};

/// The position at which a stream begins.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StreamStart {
    /// The id of the last event that the reader has, for readers that cannot set the header `Last-Event-ID`.
    last_event_id: Option<String>,
}

/// The events of a space, as server-sent events.
#[utoipa::path(get, path = "/api/spaces/{spaceId}/events", params(("spaceId" = String, Path), StreamStart), responses(
    (status = 200, content_type = "text/event-stream", body = String), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 429, body = ErrorBody)))]
pub(super) async fn space_events(
    State(state): State<Arc<GatewayState>>,
    token: TokenHash,
    Path(space): Path<String>,
    Query(start): Query<StreamStart>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    open(state, token, StreamSubject::Space(space), &headers, start).await
}

/// The events of an agent, as server-sent events.
#[utoipa::path(get, path = "/api/agents/{agentId}/events", params(("agentId" = String, Path), StreamStart), responses(
    (status = 200, content_type = "text/event-stream", body = String), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 429, body = ErrorBody)))]
pub(super) async fn agent_events(
    State(state): State<Arc<GatewayState>>,
    token: TokenHash,
    Path(agent): Path<String>,
    Query(start): Query<StreamStart>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    open(state, token, StreamSubject::Agent(agent), &headers, start).await
}

/// The events of a run, as server-sent events.
#[utoipa::path(get, path = "/api/runs/{runId}/events", params(("runId" = String, Path), StreamStart), responses(
    (status = 200, content_type = "text/event-stream", body = String), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 429, body = ErrorBody)))]
pub(super) async fn run_events(
    State(state): State<Arc<GatewayState>>,
    token: TokenHash,
    Path(run): Path<String>,
    Query(start): Query<StreamStart>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    open(state, token, StreamSubject::Run(run), &headers, start).await
}

async fn open(
    state: Arc<GatewayState>,
    token: TokenHash,
    subject: StreamSubject,
    headers: &HeaderMap,
    start: StreamStart,
) -> Result<Response, ApiError> {
    // Pass the token on: access is checked again while the stream is open.
    let stream_access = StreamAccess::new(Arc::clone(&state), token, subject).await?;
    sse::respond(state, stream_access, headers, start.last_event_id.as_deref()).await
}
