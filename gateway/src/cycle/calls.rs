//! [`ShownCalls`]: stores the external calls of a cycle, and shows that they wait.

use std::sync::Arc;

use portcullis_runs::StoredExternalCalls;
use portcullis_tools::{AddedCall, ExternalCall, ExternalCallState, ExternalCalls};
use portcullis_types::{ToolError, async_trait};

use super::space::CycleSpace;

/// Stores the external calls of a cycle, and shows that they wait.
pub(super) struct ShownCalls {
    pub(super) inner: StoredExternalCalls,
    pub(super) space: Arc<CycleSpace>,
}

#[async_trait]
impl ExternalCalls for ShownCalls {
    async fn add(&self, call: &ExternalCall) -> Result<AddedCall, ToolError> {
        let added = self.inner.add(call).await?;
        let status = match added.state {
            ExternalCallState::Waiting => "waiting",
            ExternalCallState::Pending => "pending",
            ExternalCallState::Resolved(_) | ExternalCallState::Closed => return Ok(added),
        };
        // Only warn: the call is stored, so it gets its result even if no space shows that it waits.
        if let Err(error) = self.space.show_waiting(&call.id, (status, added.expires_at)).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a waiting call is not shown");
        }
        Ok(added)
    }

    async fn wait(&self, id: &str) -> Result<ExternalCallState, ToolError> {
        self.inner.wait(id).await
    }

    async fn stop_waiting(&self, id: &str) -> Result<ExternalCallState, ToolError> {
        self.inner.stop_waiting(id).await
    }

    async fn cancel(&self, id: &str) -> Result<(), ToolError> {
        self.inner.cancel(id).await
    }
}
