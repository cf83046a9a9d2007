//! [`Gateway`]: serves the HTTP interface, and wakes the agents.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Request, header},
};
use portcullis_runs::{Runs, now};
use portcullis_store::{GatewayStore, SpaceStore, StoreError, Token};
use portcullis_tools::ToolRegistry;
use portcullis_types::CancellationToken;
use tokio::{net::TcpListener, task::JoinSet};
use tower::ServiceExt as _;

use crate::{
    access::{TokenKind, token_hash},
    allowance::MessageAllowance,
    audit_rows::RunAuditRows,
    connections,
    cycles::{self, CycleScheduler},
    error::{GatewayError, GatewayRequestError},
    hub::EventHub,
    routes,
    state::{GatewayState, Models, new_id},
    stream_access::StreamAccesses,
};

/// The maximum size of a response that [`Gateway::request`] returns.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// How long events can be replayed: 7 days.
const EVENT_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How often old events and the remains of removed spaces are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum number of rows that one sweep removes.
const MAX_SWEPT_ROWS: u32 = 1000;

/// The parts of a gateway.
pub struct GatewayParts {
    /// The store of participants, spaces, events and runs.
    pub store: Arc<dyn GatewayStore>,
    /// The runs of the same store.
    pub runs: Runs,
    /// The tools that every agent has, and the policy. Each agent's own tools are added for its cycles.
    pub registry: Arc<ToolRegistry>,
    /// Chooses the models.
    pub models: Arc<dyn Models>,
    /// The folder that the runs work on, as the operator names it.
    pub workspace: String,
    /// The audit log. The page shows the rows of a run.
    pub audit_log: PathBuf,
    /// A script with additional components for the page.
    pub extensions: Option<String>,
}

impl fmt::Debug for GatewayParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayParts").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

/// A gateway. It serves until its token is cancelled.
pub struct Gateway {
    state: Arc<GatewayState>,
    /// Built once, because deriving the description of the interface is slow.
    router: axum::Router,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

impl Gateway {
    /// Prepares a gateway, which does not serve or wake agents yet.
    ///
    /// # Errors
    /// [`GatewayError::Store`] if the store cannot be read.
    pub async fn new(parts: GatewayParts, stop: CancellationToken) -> Result<Self, GatewayError> {
        let GatewayParts { store, runs, registry, models, workspace, audit_log, extensions } = parts;
        let hub = EventHub::new(Arc::clone(&store) as Arc<dyn SpaceStore>).await?;
        let state = GatewayState {
            store,
            runs,
            registry,
            models,
            hub,
            cycles: CycleScheduler::default(),
            stream_accesses: StreamAccesses::default(),
            allowance: MessageAllowance::default(),
            workspace,
            rows: Arc::new(RunAuditRows::new(audit_log)),
            extensions,
            stop,
        };
        let state = Arc::new(state);
        let router = routes::router(Arc::clone(&state));
        Ok(Self { state, router })
    }

    /// Creates a token of the operator. Its text is not stored.
    ///
    /// # Errors
    /// [`GatewayError::Store`], [`GatewayError::Random`].
    pub async fn make_admin_token(&self) -> Result<String, GatewayError> {
        let random = |source| GatewayError::Random { source };
        let token = new_id("pct").map_err(random)?;
        self.accept_admin_token(&token).await?;
        Ok(token)
    }

    /// Accepts this token as the operator's.
    ///
    /// # Errors
    /// [`GatewayError::Store`], [`GatewayError::Random`].
    pub async fn accept_admin_token(&self, token: &str) -> Result<(), GatewayError> {
        let hash = token_hash(token);
        // A gateway that restarts with the same token finds its row.
        if self.state.store.find_token(&hash).await?.is_some() {
            return Ok(());
        }
        let id = new_id("tok").map_err(|source| GatewayError::Random { source })?;
        let row = Token {
            id,
            hash,
            subject_kind: TokenKind::Admin.as_str().to_owned(),
            subject: None,
            created: now(),
        };
        Ok(self.state.store.add_token(row).await?)
    }

    /// Returns the routes, for a server of the embedding program.
    pub fn router(&self) -> axum::Router {
        self.router.clone()
    }

    /// Makes a request with this token, without a connection. Returns the body of the response.
    ///
    /// # Errors
    /// [`GatewayRequestError`]. For a refusal it has the body of the response.
    pub async fn request(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: serde_json::Value,
    ) -> Result<serde_json::Value, GatewayRequestError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string()))
            .map_err(GatewayRequestError::Invalid)?;
        // The router is infallible.
        let response = self.router().oneshot(request).await.unwrap_or_else(|error| match error {});
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), MAX_ANSWER_BYTES).await;
        let bytes = bytes.map_err(|error| GatewayRequestError::Body(error.into_inner()))?;
        if !status.is_success() {
            let body = String::from_utf8_lossy(&bytes).into_owned();
            return Err(GatewayRequestError::Refused { status, body });
        }
        // A response without a body becomes null.
        Ok(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Wakes agents, delivers events and removes old rows until the token is cancelled. If another server
    /// serves the router, run this beside it.
    pub async fn work(&self) {
        let state = &self.state;
        // Dropping this future drops the set, which aborts the tasks.
        let mut tasks = JoinSet::new();
        let following = Arc::clone(state);
        tasks.spawn(async move { following.hub.follow().await });
        let sweeping = Arc::clone(state);
        tasks.spawn(async move { sweep(&sweeping).await });
        cycles::run(state).await;
    }

    /// Serves the listener's clients until the token is cancelled, then waits until the running cycles have
    /// stopped.
    pub async fn serve(&self, listener: TcpListener) {
        let stop = self.state.stop.clone();
        let serving = connections::serve(listener, self.router(), stop.cancelled());
        futures_util::future::join(serving, self.work()).await;
    }
}

/// Removes old rows until the task is aborted.
async fn sweep(state: &GatewayState) {
    loop {
        if let Err(error) = sweep_once(state).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot remove old rows");
        }
        tokio::time::sleep(SWEEP_INTERVAL).await;
    }
}

async fn sweep_once(state: &GatewayState) -> Result<(), StoreError> {
    let now = now();
    let retention = i64::try_from(EVENT_RETENTION.as_millis()).unwrap_or(i64::MAX);
    state.store.remove_events_before(now - retention, MAX_SWEPT_ROWS).await?;
    state.store.sweep_spaces(MAX_SWEPT_ROWS).await?;
    state.store.expire_external_calls(now, MAX_SWEPT_ROWS).await?;
    state.store.expire_approvals(now, MAX_SWEPT_ROWS).await?;
    Ok(())
}
