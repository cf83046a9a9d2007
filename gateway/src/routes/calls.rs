//! Calls whose results come from outside, and the submission of these results.

use std::sync::Arc;

use axum::{Json, extract::State};
use portcullis_runs::now;
use portcullis_store::{
    self as store, Change, ExternalCallFilter, ExternalCallStatus, MessageStatus, MessageUpdate,
    ResolveOutcome, ResultDelivery, StoredExternalCall,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Body, Path, Query, age_cursor, by_age, parse_word};
use crate::{
    access::{Identity, VisibleRuns},
    cycle::message_event,
    error::{ApiError, ErrorBody, ErrorCode},
    from_store,
    resource::{Call, Listing, ShownCall},
    state::{GatewayState, event, run_topics},
};

/// The filter of a list of calls.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CallQuery {
    /// The number of items: 1 to 1,000. Default: 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The cursor of the page before.
    after: Option<String>,
    /// Only the calls of this agent.
    agent_id: Option<String>,
    /// Only the calls of this run.
    run_id: Option<String>,
    /// Only the calls with this status: `waiting`, `pending`, `resolved`, `expired` or `cancelled`.
    status: Option<String>,
}

/// A result that is submitted (specification 003).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SubmittedResult {
    /// The id of the pending call.
    call_id: String,
    /// The result: any JSON.
    #[schema(value_type = Object)]
    result: Value,
}

/// The response to an accepted result.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcceptedResult {
    call_id: String,
    /// `resolved`.
    status: &'static str,
    /// `inline` if the run waits for the result, `inbox` if it reaches the agent with a later cycle.
    delivery: &'static str,
}

/// Calls whose results come from outside, the newest first. A page can have fewer items than its limit, because it
/// leaves out those that the caller does not see.
#[utoipa::path(get, path = "/api/calls", params(CallQuery), responses(
    (status = 200, body = Listing<Call>), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn list(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Query(query): Query<CallQuery>,
) -> Result<Json<Listing<Call>>, ApiError> {
    let statuses = || ExternalCallStatus::ALL.iter().map(|status| (status.as_str(), *status));
    let status = query.status.map(|text| parse_word("status", &text, statuses())).transpose()?;
    // Access check for a run's token: restrict the filter to its own run. Another run counts as unknown, so
    // that the error does not reveal whether it exists.
    let run = match (caller.listed_run(), query.run_id) {
        (Some(own), Some(filter)) if own != filter => return Err(ApiError::not_found("run", &filter)),
        (own, filter) => own.map(str::to_owned).or(filter),
    };
    let agent = caller.listed_agent(&state, query.agent_id).await?;
    let filter = ExternalCallFilter { run, agent, status };
    let page = state.store.shown_calls(filter, by_age(query.limit, query.after.as_deref())?).await?;
    let now = now();
    let mut visible = VisibleRuns::new(&state, &caller);
    let mut items = Vec::new();
    for shown in page.items {
        if visible.can_see(&shown.call.run, &shown.call.agent).await? {
            items.push(from_store::call(shown, now)?);
        }
    }
    Ok(Json(Listing { items, next: page.next.map(age_cursor) }))
}

/// A call.
#[utoipa::path(get, path = "/api/calls/{callId}", params(("callId" = String, Path)), responses(
    (status = 200, body = Call), (status = 401, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn get(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Json<Call>, ApiError> {
    let call = state.store.external_call(&id).await?;
    caller.ensure_sees_run(&state, (&call.run, &call.agent)).await?;
    let (space, metadata) = match state.store.call_message(&id).await? {
        Some(message) => (Some(message.space), message.metadata),
        None => (None, None),
    };
    from_store::call(store::CallWithMessage { call, space, metadata }, now()).map(Json)
}

/// Submits the result of a call (specification 003). Submitting the same result again succeeds; a different result is
/// refused.
#[utoipa::path(post, path = "/api/runs/{runId}/tool-results", params(("runId" = String, Path)), request_body = SubmittedResult, responses(
    (status = 200, body = AcceptedResult), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 410, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn submit(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(run): Path<String>,
    Body(submitted): Body<SubmittedResult>,
) -> Result<Json<AcceptedResult>, ApiError> {
    let SubmittedResult { call_id, result } = submitted;
    let unknown = || ApiError::not_found("call", &call_id);
    let call = match state.store.external_call(&call_id).await {
        Ok(call) if call.run == run => call,
        Ok(_) | Err(store::StoreError::NotFound { .. }) => return Err(unknown()),
        Err(error) => return Err(error.into()),
    };
    // A missing call and a hidden one give the same error, so that the error does not reveal whether an id
    // exists.
    if !caller.sees_run(&state, (&call.run, &call.agent)).await? {
        return Err(unknown());
    }
    let message = state.store.call_message(&call_id).await?;
    if let Some(user) = caller.user() {
        // A person answers only calls that a space shows. The other calls are meant for a program.
        let space = message.as_ref().map(|message| message.space.as_str());
        let is_shown = match space {
            Some(space) => state.store.is_member(space, user).await?,
            None => false,
        };
        if !is_shown {
            return Err(ApiError::forbidden("this call is answered by a program of its agent"));
        }
    }
    let mut changes = Vec::new();
    let space = message.as_ref().map(|message| message.space.clone());
    if let Some(message) = message {
        let mut shown: ShownCall = match &message.metadata {
            Some(shown) => from_store::parse(shown)?,
            None => return Err(unknown()),
        };
        shown.output = Some(result.clone());
        shown.error = None;
        changes.push(Change::UpdateMessage(MessageUpdate {
            id: message.id,
            // Expect no status: the store decides below whether the call accepts the result.
            expected: None,
            text: None,
            status: Some(MessageStatus::Complete),
            metadata: Some(store::Json::of(&shown)?),
            updated: now(),
        }));
        changes.push(message_event("message.updated", &message.space));
    }
    let (by, by_id) = caller.kind_and_id();
    let data = json!({
        "callId": call_id,
        "runId": run,
        "status": "resolved",
        "by": { "subject": by, "id": by_id },
    });
    changes.push(event("call.resolved", run_topics(&call.agent, &run, space.as_deref()), &data)?);
    // Write result, message and events in one transaction, so that no reader sees one without the others.
    let resolved =
        state.store.resolve_external_call_with(&call_id, store::Json::of(&result)?, now(), changes).await?;
    let delivery = match resolved {
        ResolveOutcome::Resolved { delivery, applied } => {
            state.show(&applied).await;
            // A late result has become an entry of the agent's inbox.
            state.cycles.wake();
            Some(delivery)
        }
        ResolveOutcome::AlreadyClosed { call, delivery } => {
            ensure_same(&call, &result)?;
            delivery
        }
    };
    let delivery = match delivery {
        Some(ResultDelivery::Inbox { .. }) => "inbox",
        // Older versions did not store the delivery of a result.
        Some(ResultDelivery::Inline) | None => "inline",
    };
    Ok(Json(AcceptedResult { call_id, status: "resolved", delivery }))
}

/// # Errors
/// 410 for an expired or cancelled call, and 409 for a call with a different result.
fn ensure_same(call: &StoredExternalCall, result: &Value) -> Result<(), ApiError> {
    let status = call.status_at(now());
    if status != ExternalCallStatus::Resolved {
        let message = format!("the call is {}, and no longer accepts a result", status.as_str());
        return Err(ApiError::new(ErrorCode::Gone, message));
    }
    let earlier = call.result.as_ref().map(from_store::value).transpose()?;
    if earlier.as_ref() == Some(result) {
        Ok(())
    } else {
        Err(ApiError::conflict("the call has another result already"))
    }
}
