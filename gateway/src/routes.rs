//! The routes of the interface, and the description that is derived from them.
//!
//! | file | what it has |
//! |---|---|
//! | `extract.rs` | reads bodies and parameters, with the interface's own errors |
//! | `tokens.rs` | the identity of the caller, and tokens |
//! | `participants.rs` | users and agents |
//! | `spaces.rs` | spaces and their members |
//! | `messages.rs` | messages of a space |
//! | `events.rs` | streams of events |
//! | `agent.rs` | an agent's inbox, goals, memories and plans |
//! | `runs.rs` | runs, their steps and rows |
//! | `calls.rs` | pending calls and their results |
//! | `approvals.rs` | questions and answers |

mod agent;
mod approvals;
mod calls;
mod events;
mod extract;
mod messages;
mod participants;
mod runs;
mod spaces;
mod tokens;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::DefaultBodyLimit,
    http::{HeaderValue, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, Ref, ResponseBuilder,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::{ApiError, ErrorCode},
    page,
    state::GatewayState,
};

/// The maximum size of the body of a request: 1 MiB.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;

#[derive(OpenApi)]
#[openapi(
    info(title = "Portcullis gateway", description = "Agents that live in spaces with people."),
    modifiers(&BearerTokens),
    security(("token" = []))
)]
struct Description;

/// Adds the bearer tokens to the description.
struct BearerTokens;

impl Modify for BearerTokens {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Returns the routes with their description in OpenAPI 3.1.
fn described() -> OpenApiRouter<Arc<GatewayState>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(tokens::me))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::remove))
        .routes(routes!(participants::list_users, participants::create_user))
        .routes(routes!(participants::list_agents, participants::create_agent))
        .routes(routes!(participants::get_agent, participants::update_agent, participants::remove_agent))
        .routes(routes!(agent::inbox))
        .routes(routes!(agent::goals))
        .routes(routes!(agent::memories))
        .routes(routes!(agent::plans))
        .routes(routes!(spaces::list, spaces::create))
        .routes(routes!(spaces::get, spaces::remove))
        .routes(routes!(spaces::members))
        .routes(routes!(spaces::add_member, spaces::remove_member))
        .routes(routes!(messages::list, messages::create))
        .routes(routes!(events::space_events))
        .routes(routes!(events::agent_events))
        .routes(routes!(events::run_events))
        .routes(routes!(runs::list))
        .routes(routes!(runs::get))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::rows))
        .routes(routes!(calls::list))
        .routes(routes!(calls::get))
        .routes(routes!(calls::submit))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::decide))
}

/// Returns the description of the interface.
pub(crate) fn description() -> utoipa::openapi::OpenApi {
    with_refusals(described().into_openapi())
}

/// Adds the common refusals to every operation. An operation lists only its own refusals, but any operation
/// can refuse a malformed body or parameter.
fn with_refusals(mut description: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    let refusal = ResponseBuilder::new()
        .description("a refusal")
        .content("application/json", Content::new(Some(Ref::from_schema_name("ErrorBody"))))
        .build();
    for path in description.paths.paths.values_mut() {
        let operations = [&mut path.get, &mut path.post, &mut path.put, &mut path.delete];
        for operation in operations.into_iter().flatten() {
            operation.responses.responses.insert("default".to_owned(), refusal.clone().into());
        }
    }
    description
}

/// Returns all routes of a gateway.
pub(crate) fn router(state: Arc<GatewayState>) -> Router {
    let (router, description) = described().split_for_parts();
    let description = Arc::new(with_refusals(description));
    router
        .route("/openapi.json", axum::routing::get(async move || Json((*description).clone())))
        .route("/healthz", axum::routing::get(health))
        .merge(page::router())
        .fallback(async || ApiError::new(ErrorCode::NotFound, "there is no such path"))
        .method_not_allowed_fallback(async || {
            ApiError::new(ErrorCode::MethodNotAllowed, "the path has no such method")
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        // Add this layer last: the outermost layer adds the headers to refusals of the other layers too.
        .layer(middleware::from_fn(common_headers))
        .with_state(state)
}

/// Answers whether the gateway can serve, that is, whether its store answers.
async fn health(axum::extract::State(state): axum::extract::State<Arc<GatewayState>>) -> Response {
    match state.store.ping().await {
        Ok(()) => Json(serde_json::json!({ "status": "ok" })).into_response(),
        Err(error) => ApiError::from(error).into_response(),
    }
}

/// Adds headers to every response: no content sniffing, no framing, no `Referer`, no use by other origins,
/// and no caching unless the response allows it.
async fn common_headers(request: axum::extract::Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests;
