//! [`StoredExternalCalls`]: stores the external calls of a driven run. Any process can then submit their
//! results.

use std::sync::Arc;

use async_trait::async_trait;
use portcullis_store::{
    ExternalCallStatus, InboxEntry, Json, LeaseGuard, NewExternalCall, PageRequest, RunStore, StoreError,
    StoredExternalCall, TOOL_RESULT, TimeOutOutcome,
};
use portcullis_tools::{
    AddedCall, Caller, ExternalCall, ExternalCallState, ExternalCalls, LateResult, ToolRegistry,
};
use portcullis_types::{ToolError, ToolResult};
use serde::Deserialize;
use serde_json::Value;

use crate::{DrivenRun, clock::now, store_changes::StoreChanges};

/// The maximum number of late results that one step adds to a run.
const MAX_ARRIVALS: u32 = 16;

/// The external calls of a driven run.
#[derive(Debug)]
pub struct StoredExternalCalls {
    run: Arc<DrivenRun>,
    /// The inbox of late results.
    inbox: String,
}

impl StoredExternalCalls {
    /// Stores the calls of this run. Their late results go to the run's own inbox.
    #[must_use]
    pub fn new(run: Arc<DrivenRun>) -> Self {
        let inbox = run.id().to_string();
        Self { run, inbox }
    }

    /// Sends late results to this inbox. Its owner takes them.
    #[must_use]
    pub fn with_inbox(self, inbox: impl Into<String>) -> Self {
        Self { inbox: inbox.into(), ..self }
    }
}

#[async_trait]
impl ExternalCalls for StoredExternalCalls {
    async fn add(&self, call: &ExternalCall) -> Result<AddedCall, ToolError> {
        add(&**self.run.store(), self.run.guard(), &self.inbox, call).await
    }

    async fn wait(&self, id: &str) -> Result<ExternalCallState, ToolError> {
        wait(&**self.run.store(), id).await
    }

    async fn stop_waiting(&self, id: &str) -> Result<ExternalCallState, ToolError> {
        stop_waiting(&**self.run.store(), id).await
    }

    async fn cancel(&self, id: &str) -> Result<(), ToolError> {
        cancel(&**self.run.store(), id).await
    }
}

/// Stores a call of the leased run. A late result is delivered to `inbox`.
pub(crate) async fn add(
    store: &dyn RunStore,
    guard: LeaseGuard,
    inbox: &str,
    call: &ExternalCall,
) -> Result<AddedCall, ToolError> {
    let run = guard.run.clone();
    let new = NewExternalCall {
        id: call.id.clone(),
        tool: call.tool.clone(),
        arguments: Json::from_text(call.arguments.as_str()).map_err(|error| unavailable(&error))?,
        inbox: inbox.to_owned(),
        status: if call.waits { ExternalCallStatus::Waiting } else { ExternalCallStatus::Pending },
        expires: Some(call.expires_at),
    };
    match store.add_external_call(guard, new).await {
        Ok(()) => {
            let state = if call.waits { ExternalCallState::Waiting } else { ExternalCallState::Pending };
            Ok(AddedCall { state, expires_at: call.expires_at })
        }
        // The call is still open after the process that made it has died.
        Err(StoreError::AlreadyExists { .. }) => {
            let earlier = store.external_call(&call.id).await.map_err(|error| unavailable(&error))?;
            // The id is a hash of agent, run and call, so another call's row means a damaged store.
            if earlier.run != run || earlier.tool != call.tool {
                return Err(ToolError::internal("another call of the store has the same id"));
            }
            let expires_at = earlier.expires.unwrap_or(call.expires_at);
            Ok(AddedCall { state: progress(&earlier)?, expires_at })
        }
        Err(error) => Err(unavailable(&error)),
    }
}

/// Waits until the call is pending, resolved or closed.
pub(crate) async fn wait(store: &dyn RunStore, id: &str) -> Result<ExternalCallState, ToolError> {
    let mut changes = StoreChanges::new(store, id);
    loop {
        match store.external_call(id).await {
            Ok(call) => match progress(&call)? {
                ExternalCallState::Waiting => {}
                ended => return Ok(ended),
            },
            // Keep waiting: the call stays in the store, so a later read may succeed.
            Err(error) if error.failure().is_some() => {
                tracing::warn!(error = &error as &dyn std::error::Error, id, "cannot read an external call");
            }
            Err(error) => return Err(unavailable(&error)),
        }
        changes.wait_for_possible_change().await;
    }
}

pub(crate) async fn stop_waiting(store: &dyn RunStore, id: &str) -> Result<ExternalCallState, ToolError> {
    match store.time_out_external_call(id, now()).await.map_err(|error| unavailable(&error))? {
        TimeOutOutcome::NowPending => Ok(ExternalCallState::Pending),
        TimeOutOutcome::AlreadyChanged(call) => progress(&call),
    }
}

pub(crate) async fn cancel(store: &dyn RunStore, id: &str) -> Result<(), ToolError> {
    store.cancel_external_call(id, now()).await.map(drop).map_err(|error| unavailable(&error))
}

fn progress(call: &StoredExternalCall) -> Result<ExternalCallState, ToolError> {
    Ok(match (call.status_at(now()), &call.result) {
        (ExternalCallStatus::Resolved, Some(result)) => {
            let value = serde_json::from_str(result.as_str());
            ExternalCallState::Resolved(value.map_err(|error| ToolError::internal(error.to_string()))?)
        }
        (ExternalCallStatus::Waiting, _) => ExternalCallState::Waiting,
        (ExternalCallStatus::Pending, _) => ExternalCallState::Pending,
        // Expired, cancelled, or resolved without a result, which only a damaged store has.
        _ => ExternalCallState::Closed,
    })
}

pub(crate) fn unavailable(error: &StoreError) -> ToolError {
    ToolError::unavailable("the call cannot be stored")
        .with_operator_detail(portcullis_types::error_chain(error))
}

/// The body of an inbox entry with a late result.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultEntry {
    call_id: String,
    result: Value,
}

impl DrivenRun {
    /// Returns the late results that wait for this run, as messages, and the ordinal of the last entry that
    /// was read.
    pub(crate) async fn late_results(&self) -> Result<(Vec<String>, Option<i64>), StoreError> {
        let page = self.store().inbox(self.id().as_str(), PageRequest::first(MAX_ARRIVALS)).await?;
        // Consume entries of other kinds too, so that later steps do not read them again.
        let last = page.items.last().map(|entry| entry.ordinal);
        let mut messages = Vec::new();
        for entry in page.items {
            let taken = take_late_result(&**self.store(), self.registry(), self.caller(), &entry).await?;
            messages.extend(taken.map(|result| late_result_text(&result)));
        }
        Ok((messages, last))
    }
}

/// Adds the late result in an inbox entry to the run of this caller. Returns `None` if the entry is not a
/// late result of a call.
///
/// # Errors
/// [`StoreError`] if the call cannot be read.
pub async fn take_late_result(
    store: &dyn RunStore,
    registry: &ToolRegistry,
    caller: &Caller,
    entry: &InboxEntry,
) -> Result<Option<ToolResult>, StoreError> {
    let is_result = entry.kind == TOOL_RESULT;
    let body = is_result.then(|| serde_json::from_str::<ResultEntry>(entry.body.as_str()).ok()).flatten();
    let Some(ResultEntry { call_id, result }) = body else {
        tracing::warn!(
            ordinal = entry.ordinal,
            kind = entry.kind,
            "an entry of the inbox is not a late result"
        );
        return Ok(None);
    };
    let call = store.external_call(&call_id).await?;
    let late =
        LateResult { id: call_id, tool: call.tool, arguments: call.arguments.as_str().to_owned(), result };
    Ok(Some(registry.take_late_result(late, caller).await))
}

/// Returns the text of a late result, as specification 003 defines it.
#[must_use]
pub fn late_result_text(result: &ToolResult) -> String {
    let hint = result.rest_hint().map(|hint| format!("\n{hint}")).unwrap_or_default();
    format!("[Tool Result: {}] (callId: {}) {}{hint}", result.tool, result.call_id, result.model_text())
}
