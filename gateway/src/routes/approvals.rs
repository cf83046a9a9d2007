//! Approval questions about calls, and their answers.

use std::sync::Arc;

use axum::{Json, extract::State};
use portcullis_runs::now;
use portcullis_store::{
    self as store, ApprovalDecision, ApprovalFilter, ApprovalStatus, StoreError, StoredAnswer,
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Body, Path, Query, age_cursor, by_age, parse_word};
use crate::{
    access::{Identity, VisibleRuns},
    error::{ApiError, ErrorBody, ErrorCode},
    from_store,
    resource::{ApprovalJson, Listing},
    state::{GatewayState, event, run_topics},
};

/// The maximum length of a reason, in characters.
pub(super) const MAX_REASON: usize = 1000;

/// The name of this interface in the rows of answers.
const VIA: &str = "gateway";

/// The filter of a list of questions.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ApprovalQuery {
    /// The number of items: 1 to 1,000. Default: 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The cursor of the page before.
    after: Option<String>,
    /// Only the questions of this run.
    run_id: Option<String>,
    /// Only the questions with this status: `waiting`, `approved`, `denied` or `expired`.
    status: Option<String>,
}

/// An answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalAnswerBody {
    /// `approve` or `deny`.
    decision: String,
    /// The hash of the question, which binds the answer to this call with these arguments.
    hash: String,
    /// Why, for the record and, with `deny`, for the model.
    #[schema(max_length = 1000)]
    reason: Option<String>,
    /// The arguments that the call runs with instead. They are checked and judged again.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Value>,
}

/// Questions, the newest first. A page can have fewer items than its limit, because it leaves out those that the caller
/// does not see.
#[utoipa::path(get, path = "/api/approvals", params(ApprovalQuery), responses(
    (status = 200, body = Listing<ApprovalJson>), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn list(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Query(query): Query<ApprovalQuery>,
) -> Result<Json<Listing<ApprovalJson>>, ApiError> {
    let statuses = || ApprovalStatus::ALL.iter().map(|status| (status.as_str(), *status));
    let status = query.status.map(|text| parse_word("status", &text, statuses())).transpose()?;
    let filter = ApprovalFilter { run: query.run_id, status };
    let page = state.store.approvals(filter, by_age(query.limit, query.after.as_deref())?).await?;
    // Filter here: a user's rights depend on the spaces of each agent.
    let mut visible = VisibleRuns::new(&state, &caller);
    let mut items = Vec::new();
    for approval in page.items {
        if visible.can_see(&approval.run, &approval.agent).await? {
            items.push(from_store::approval(approval, now()));
        }
    }
    Ok(Json(Listing { items, next: page.next.map(age_cursor) }))
}

/// Answers a question. An agent's token cannot answer any, because agents cannot approve their own calls.
#[utoipa::path(post, path = "/api/approvals/{approvalId}", params(("approvalId" = String, Path)), request_body = ApprovalAnswerBody, responses(
    (status = 200, body = ApprovalJson), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 410, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn decide(
    State(state): State<Arc<GatewayState>>,
    caller: Identity,
    Path(id): Path<String>,
    Body(answer): Body<ApprovalAnswerBody>,
) -> Result<Json<ApprovalJson>, ApiError> {
    let by = match &caller {
        Identity::Admin => "operator".to_owned(),
        Identity::User(id) => id.clone(),
        Identity::Agent(_) | Identity::Run { .. } => {
            return Err(ApiError::forbidden("agents cannot approve their own calls"));
        }
    };
    let approval = state.store.approval(&id).await?;
    if !caller.sees_run(&state, (&approval.run, &approval.agent)).await? {
        // Return the same error as for a missing request, so that it does not reveal whether an id exists.
        return Err(ApiError::not_found("approval", &id));
    }
    let decision = parse_word(
        "decision",
        &answer.decision,
        [("approve", ApprovalDecision::Approve), ("deny", ApprovalDecision::Deny)],
    )?;
    if decision == ApprovalDecision::Deny && answer.arguments.is_some() {
        return Err(ApiError::invalid("arguments", "a denied call has no arguments"));
    }
    if answer.arguments.as_ref().is_some_and(|arguments| !arguments.is_object()) {
        return Err(ApiError::invalid("arguments", "the arguments of a call are an object"));
    }
    if answer.reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON) {
        return Err(ApiError::invalid("reason", format!("a reason has at most {MAX_REASON} characters")));
    }
    let stored = StoredAnswer {
        decision,
        by,
        via: VIA.to_owned(),
        edited_arguments: answer.arguments.as_ref().map(store::Json::of).transpose()?,
        reason: answer.reason,
        decided: now(),
    };
    // The store compares hash, status and expiry in one statement, so only one of two concurrent answers
    // counts.
    let decided = match state.store.answer_approval(&id, &answer.hash, stored).await {
        Ok(decided) => decided,
        Err(StoreError::ApprovalClosed { status: ApprovalStatus::Expired, .. }) => {
            return Err(ApiError::new(ErrorCode::Gone, "the question has expired"));
        }
        Err(StoreError::ApprovalClosed { status, .. }) => {
            return Err(ApiError::conflict(format!("the question is {}", status.as_str())));
        }
        Err(error) => return Err(error.into()),
    };
    // The answer is already stored. The event only informs, so it may be a separate transaction.
    let topics = run_topics(&decided.agent, &decided.run, None);
    let approval_json = from_store::approval(decided, now());
    state.write(vec![event("approval.decided", topics, &json!({ "approval": approval_json }))?]).await?;
    Ok(Json(approval_json))
}
