//! [`ClientCalls`]: stores the external calls of clients that have no agent loop here: clients of a server,
//! or of the command line.

use async_trait::async_trait;
use portcullis_store::{RunLease, RunStatus};
use portcullis_tools::{AddedCall, ExternalCall, ExternalCallState, ExternalCalls};
use portcullis_types::{Message, ToolError};

use crate::{
    DrivenRun, RunError, RunId, RunSubject, Runs,
    external::{self, unavailable},
};

/// The first message of such a run, for listings.
const PROMPT: &str = "(a call of a client)";

/// The external calls of clients. Each call has its own run in the store. The run ends as soon as the call is
/// stored, so no loop resumes it. A late result stays with the call.
#[derive(Debug)]
pub struct ClientCalls {
    runs: Runs,
    workspace: String,
}

impl ClientCalls {
    /// Stores the calls of clients in this workspace.
    #[must_use]
    pub fn new(runs: Runs, workspace: String) -> Self {
        Self { runs, workspace }
    }

    /// Adds a run for one call, and leases it.
    async fn add_run(&self, call: &ExternalCall) -> Result<(RunId, RunLease), RunError> {
        let id = RunId::random()?;
        let subject =
            RunSubject { id: id.clone(), agent: call.agent.clone(), workspace: self.workspace.clone() };
        self.runs.add(subject, Message::user(PROMPT)).await?;
        let lease = self.runs.acquire(&id).await?;
        Ok((id, lease))
    }
}

#[async_trait]
impl ExternalCalls for ClientCalls {
    async fn add(&self, call: &ExternalCall) -> Result<AddedCall, ToolError> {
        let (id, lease) = self.add_run(call).await.map_err(call_error)?;
        let store = &**self.runs.store();
        let added = external::add(store, self.runs.guard(&id), id.as_str(), call).await;
        // End the run even if the store has refused its call, so that no run stays open without a loop.
        let end = ("finalize", RunStatus::Completed);
        let ended = DrivenRun::end_undriven(store, self.runs.process(), (&id, lease), end).await;
        ended.map_err(call_error)?;
        added
    }

    async fn wait(&self, id: &str) -> Result<ExternalCallState, ToolError> {
        external::wait(&**self.runs.store(), id).await
    }

    async fn stop_waiting(&self, id: &str) -> Result<ExternalCallState, ToolError> {
        external::stop_waiting(&**self.runs.store(), id).await
    }

    async fn cancel(&self, id: &str) -> Result<(), ToolError> {
        external::cancel(&**self.runs.store(), id).await
    }
}

/// Converts an error of the call's run to the call's error.
fn call_error(error: RunError) -> ToolError {
    match error {
        RunError::Store(error) => unavailable(&error),
        error => ToolError::internal(portcullis_types::error_chain(&error)),
    }
}
