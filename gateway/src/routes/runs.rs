//! Runs, their steps and rows.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use portcullis_runs::{RunId, now};
use portcullis_store::{self as store, RunFilter, RunStatus};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::extract::{Path, Query, age_cursor, by_age, parse_word};
use crate::{
    access::{Identity, VisibleRuns},
    error::{ApiError, ErrorBody},
    from_store,
    resource::{Listing, Run, RunDetails},
    state::GatewayState,
};

/// The maximum number of rows of the audit log that are returned.
const MAX_ROWS: usize = 1000;

/// The filter of a list of runs.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RunQuery {
    /// The number of items: 1 to 1,000. Default: 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The cursor of the page before.
    after: Option<String>,
    /// Only the runs of this agent.
    agent_id: Option<String>,
    /// Only the runs with this status: `running`, `waiting`, `completed`, `failed` or `cancelled`.
    status: Option<String>,
}

/// Runs, the newest first. A page can have fewer items than its limit, because it leaves out those that the caller does
/// not see.
#[utoipa::path(get, path = "/api/runs", params(RunQuery), responses(
    (status = 200, body = Listing<Run>), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn list(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Query(query): Query<RunQuery>,
) -> Result<Json<Listing<Run>>, ApiError> {
    let agent = caller.listed_agent(&state, query.agent_id).await?;
    let statuses = || RunStatus::ALL.iter().map(|status| (status.as_str(), *status));
    let status = query.status.map(|text| parse_word("status", &text, statuses())).transpose()?;
    let filter = RunFilter { agent, status, ..RunFilter::default() };
    let page = state.store.runs(filter, by_age(query.limit, query.after.as_deref())?).await?;
    let mut visible = VisibleRuns::new(&state, &caller);
    let mut items = Vec::new();
    for run in page.items {
        if visible.can_see(&run.id, &run.agent).await? {
            items.push(from_store::run(&run));
        }
    }
    Ok(Json(Listing { items, next: page.next.map(age_cursor) }))
}

/// A run with its labels and steps.
#[utoipa::path(get, path = "/api/runs/{runId}", params(("runId" = String, Path)), responses(
    (status = 200, body = RunDetails), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn get(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Json<RunDetails>, ApiError> {
    let run = visible_run(&state, &caller, &id).await?;
    let steps = portcullis_runs::all_rows(|page| state.store.steps(&id, page)).await?;
    let steps = steps.into_iter().map(from_store::run_step).collect();
    Ok(Json(RunDetails { run: from_store::run(&run), labels: run.labels, steps }))
}

/// Asks that a run end.
#[utoipa::path(post, path = "/api/runs/{runId}/cancel", params(("runId" = String, Path)), responses(
    (status = 202), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn cancel(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let agent = visible_run(&state, &caller, &id).await?.agent;
    state.store.request_cancel(&id, now()).await?;
    // A cycle of this process sees the request and ends the run. `Runs::cancel` would end the run under the
    // running cycle, because this process holds the lease.
    if state.cycles.is_active(&agent) {
        return Ok(StatusCode::ACCEPTED);
    }
    let id: RunId = id.parse()?;
    state.runs.cancel(&id).await?;
    Ok(StatusCode::ACCEPTED)
}

/// The rows of the audit log about a run, the oldest first, at most the last 1,000.
#[utoipa::path(get, path = "/api/runs/{runId}/rows", params(("runId" = String, Path)), responses(
    (status = 200, body = Listing<Object>), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn rows(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Json<Listing<Value>>, ApiError> {
    visible_run(&state, &caller, &id).await?;
    let reader = Arc::clone(&state.rows);
    // Do not block the executor: the log can be long.
    let read = tokio::task::spawn_blocking(move || reader.rows_of(&id, MAX_ROWS)).await;
    let items =
        read.map_err(|error| ApiError::internal(&error))?.map_err(|error| ApiError::internal(&error))?;
    Ok(Json(Listing { items, next: None }))
}

/// Returns a run, if the caller may see it.
async fn visible_run(
    state: &GatewayState,
    caller: &Identity,
    id: &str,
) -> Result<store::RunSummary, ApiError> {
    let run = state.store.run(id).await?.summary;
    caller.ensure_sees_run(state, (id, &run.agent)).await?;
    Ok(run)
}
