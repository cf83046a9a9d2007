//! [`StoredExternalCalls`]: keeps the external calls of a driven run in its store, where any process can submit their
//! results.

use std::sync::Arc;

use async_trait::async_trait;
use portcullis_store::{
    CallStatus, InboxEntry, Json, LeaseGuard, NewCall, PageRequest, PendingCall, RunStore, StoreError,
    TOOL_RESULT, TimeOut,
};
use portcullis_tools::{CallProgress, ExternalCall, ExternalCalls, LateResult};
use portcullis_types::{ToolError, ToolResult};
use serde::Deserialize;
use serde_json::Value;

use crate::{DrivenRun, approver::POLL, clock::now};

/// The most late results that enter a run with one step.
const MAX_ARRIVALS: u32 = 16;

/// The external calls of a driven run.
#[derive(Debug)]
pub struct StoredExternalCalls(Arc<DrivenRun>);

impl StoredExternalCalls {
    /// The calls of this run.
    #[must_use]
    pub fn new(run: Arc<DrivenRun>) -> Self {
        Self(run)
    }
}

#[async_trait]
impl ExternalCalls for StoredExternalCalls {
    async fn add(&self, call: &ExternalCall) -> Result<(CallProgress, i64), ToolError> {
        add(&**self.0.store(), self.0.guard(), call).await
    }

    async fn wait(&self, id: &str) -> Result<CallProgress, ToolError> {
        wait(&**self.0.store(), id).await
    }

    async fn stop_waiting(&self, id: &str) -> Result<CallProgress, ToolError> {
        stop_waiting(&**self.0.store(), id).await
    }

    async fn cancel(&self, id: &str) -> Result<(), ToolError> {
        cancel(&**self.0.store(), id).await
    }
}

/// Adds a call to the run of this lease. The inbox of a late result has the name of the run.
pub(crate) async fn add(
    store: &dyn RunStore,
    guard: LeaseGuard,
    call: &ExternalCall,
) -> Result<(CallProgress, i64), ToolError> {
    let run = guard.run.clone();
    let new = NewCall {
        id: call.id.clone(),
        tool: call.tool.clone(),
        arguments: Json::from_text(call.arguments.as_str()).map_err(|error| unavailable(&error))?,
        inbox: run.clone(),
        status: if call.waits { CallStatus::Waiting } else { CallStatus::Pending },
        expires: Some(call.expires),
    };
    match store.add_call(guard, new).await {
        Ok(()) if call.waits => Ok((CallProgress::Waiting, call.expires)),
        Ok(()) => Ok((CallProgress::Pending, call.expires)),
        // The process that made the call has died, and the call goes on.
        Err(StoreError::AlreadyExists { .. }) => {
            let earlier = store.call(&call.id).await.map_err(|error| unavailable(&error))?;
            if earlier.run != run || earlier.tool != call.tool {
                return Err(ToolError::internal("another call of the store has the same id"));
            }
            Ok((progress(&earlier)?, earlier.expires.unwrap_or(call.expires)))
        }
        Err(error) => Err(unavailable(&error)),
    }
}

/// Waits until the call does not wait any more.
pub(crate) async fn wait(store: &dyn RunStore, id: &str) -> Result<CallProgress, ToolError> {
    loop {
        match store.call(id).await {
            Ok(call) => match progress(&call)? {
                CallProgress::Waiting => {}
                ended => return Ok(ended),
            },
            // The call stays in the store, so a later read may succeed.
            Err(error) if error.fault().is_some() => {
                tracing::warn!(error = &error as &dyn std::error::Error, id, "an external call is not read");
            }
            Err(error) => return Err(unavailable(&error)),
        }
        tokio::time::sleep(POLL).await;
    }
}

pub(crate) async fn stop_waiting(store: &dyn RunStore, id: &str) -> Result<CallProgress, ToolError> {
    match store.time_out_call(id, now()).await.map_err(|error| unavailable(&error))? {
        TimeOut::Pending => Ok(CallProgress::Pending),
        TimeOut::Earlier(call) => progress(&call),
    }
}

pub(crate) async fn cancel(store: &dyn RunStore, id: &str) -> Result<(), ToolError> {
    store.cancel_call(id, now()).await.map(drop).map_err(|error| unavailable(&error))
}

fn progress(call: &PendingCall) -> Result<CallProgress, ToolError> {
    Ok(match (call.status_at(now()), &call.result) {
        (CallStatus::Resolved, Some(result)) => {
            let value = serde_json::from_str(result.as_str());
            CallProgress::Resolved(value.map_err(|error| ToolError::internal(error.to_string()))?)
        }
        (CallStatus::Waiting, _) => CallProgress::Waiting,
        (CallStatus::Pending, _) => CallProgress::Pending,
        _ => CallProgress::Closed,
    })
}

pub(crate) fn unavailable(error: &StoreError) -> ToolError {
    ToolError::unavailable("the store of the run cannot keep the call")
        .with_operator_detail(portcullis_types::chain(error))
}

/// The body of an entry with a late result.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultEntry {
    call_id: String,
    result: Value,
}

impl DrivenRun {
    /// The late results that wait for this run, as messages, with the ordinal of the last entry that they are from.
    pub(crate) async fn late_results(&self) -> Result<(Vec<String>, Option<i64>), StoreError> {
        let page = self.store().inbox(self.id().as_str(), PageRequest::first(MAX_ARRIVALS)).await?;
        let last = page.items.last().map(|entry| entry.ordinal);
        let mut messages = Vec::new();
        for entry in page.items {
            messages.extend(self.late_result(entry).await?);
        }
        Ok((messages, last))
    }

    /// The message of an entry. None for an entry that is no late result of a call.
    async fn late_result(&self, entry: InboxEntry) -> Result<Option<String>, StoreError> {
        let is_result = entry.kind == TOOL_RESULT;
        let body = is_result.then(|| serde_json::from_str::<ResultEntry>(entry.body.as_str()).ok()).flatten();
        let Some(ResultEntry { call_id, result }) = body else {
            tracing::warn!(
                ordinal = entry.ordinal,
                kind = entry.kind,
                "an entry of the inbox is no late result"
            );
            return Ok(None);
        };
        let call = self.store().call(&call_id).await?;
        let late = LateResult {
            id: call_id,
            tool: call.tool,
            arguments: call.arguments.as_str().to_owned(),
            result,
        };
        let taken = self.registry().take_late_result(late, self.caller()).await;
        Ok(Some(message_text(&taken)))
    }
}

/// The text of a late result, as specification 003 has it.
fn message_text(result: &ToolResult) -> String {
    let hint = result.rest_hint().map(|hint| format!("\n{hint}")).unwrap_or_default();
    format!("[Tool Result: {}] (callId: {}) {}{hint}", result.tool, result.call_id, result.model_text())
}
