//! Streams of events.

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{Path, Query, Refusal};
use crate::{access::Identity, core::Core, error::ApiError, sse, topic};

/// Where a stream begins.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Begin {
    /// The id of the last event that the reader has, for readers that cannot set the header `Last-Event-ID`.
    last_event_id: Option<String>,
}

/// The events of a space, as server-sent events.
#[utoipa::path(get, path = "/api/spaces/{spaceId}/events", params(("spaceId" = String, Path), Begin), responses(
    (status = 200, content_type = "text/event-stream", body = String), (status = 400, body = Refusal), (status = 401, body = Refusal),
    (status = 404, body = Refusal)))]
pub(super) async fn of_space(
    State(core): State<Arc<Core>>,
    caller: Identity,
    Path(space): Path<String>,
    Query(begin): Query<Begin>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    caller.ensure_sees_space(&core, &space).await?;
    core.store.space(&space).await?;
    sse::respond(core, topic::of_space(&space), &headers, begin.last_event_id.as_deref()).await
}

/// The events of an agent, as server-sent events.
#[utoipa::path(get, path = "/api/agents/{agentId}/events", params(("agentId" = String, Path), Begin), responses(
    (status = 200, content_type = "text/event-stream", body = String), (status = 400, body = Refusal), (status = 401, body = Refusal),
    (status = 404, body = Refusal)))]
pub(super) async fn of_agent(
    State(core): State<Arc<Core>>,
    caller: Identity,
    Path(agent): Path<String>,
    Query(begin): Query<Begin>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    caller.ensure_sees_agent(&core, &agent).await?;
    sse::respond(core, topic::of_agent(&agent), &headers, begin.last_event_id.as_deref()).await
}

/// The events of a run, as server-sent events.
#[utoipa::path(get, path = "/api/runs/{runId}/events", params(("runId" = String, Path), Begin), responses(
    (status = 200, content_type = "text/event-stream", body = String), (status = 400, body = Refusal), (status = 401, body = Refusal),
    (status = 404, body = Refusal)))]
pub(super) async fn of_run(
    State(core): State<Arc<Core>>,
    caller: Identity,
    Path(run): Path<String>,
    Query(begin): Query<Begin>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let agent = core.store.run(&run).await?.summary.agent;
    caller.ensure_sees_run(&core, (&run, &agent)).await?;
    sse::respond(core, topic::of_run(&run), &headers, begin.last_event_id.as_deref()).await
}
