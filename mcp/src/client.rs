//! [`Client`]: lets a native tool send reports and questions to the client that calls it.

use std::{collections::HashMap, fmt, sync::Arc};

use parking_lot::Mutex;
use portcullis_types::ToolContext;
use rmcp::model::{ElicitationAction, ElicitationSchema};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use super::log::LogLevel;

/// The clients of running calls, by call id. A server shares one instance with the tools that talk to its
/// clients.
#[derive(Clone, Default)]
pub struct Clients(Arc<Mutex<HashMap<String, Client>>>);

/// The client that made a call, reachable while the call runs.
#[derive(Debug, Clone)]
pub struct Client {
    reports: mpsc::Sender<CallReport>,
}

/// A report of a call to its client, before the result.
#[derive(Debug)]
pub(super) enum CallReport {
    /// Progress of the call.
    Progress { progress: Option<f64>, total: Option<f64>, message: Option<String> },
    /// The call still runs, without progress.
    Alive,
    /// A log message.
    Log { level: LogLevel, data: Value },
    /// A question to the person behind the client.
    Elicit {
        message: String,
        schema: ElicitationSchema,
        answer: oneshot::Sender<Result<ElicitationAnswer, ClientError>>,
    },
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ElicitationAnswer {
    /// `accept`, `decline` or `cancel`.
    pub action: &'static str,
    /// The form's content if the action is `accept`. The client may send anything, so the tool must validate it.
    pub content: Option<Value>,
}

/// Why a request to a client has no usable answer.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// The call has ended, or the client is gone.
    #[error("the client has disconnected")]
    Gone,
    /// The client does not support elicitation.
    #[error("the client does not support elicitation")]
    Unsupported,
    /// A form cannot have this schema.
    #[error("a form cannot be made from the schema: {0}")]
    Schema(String),
    /// The protocol has no such log level.
    #[error("there is no log level `{0}`")]
    Level(String),
    /// The client answered with an error.
    #[error("the client refused: {0}")]
    Refused(String),
}

impl Clients {
    /// Returns the client of the call that a tool serves, or `None` if the call did not come through this
    /// server.
    #[must_use]
    pub fn client_for(&self, ctx: &ToolContext) -> Option<Client> {
        self.0.lock().get(&ctx.call_id).cloned()
    }

    /// Registers a call's client until the guard is dropped.
    pub(super) fn register(&self, call_id: &str, reports: mpsc::Sender<CallReport>) -> ClientGuard {
        let client = Client { reports };
        self.0.lock().insert(call_id.to_owned(), client);
        ClientGuard { clients: self.clone(), call_id: call_id.to_owned() }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clients({})", self.0.lock().len())
    }
}

/// Removes a call's client when it is dropped, at the call's end.
#[derive(Debug)]
pub(super) struct ClientGuard {
    clients: Clients,
    call_id: String,
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.clients.0.lock().remove(&self.call_id);
    }
}

impl Client {
    /// Reports progress if the client asked for it. Each number must be greater than the last.
    ///
    /// # Errors
    /// [`ClientError::Gone`] if the call has ended, or the client is gone.
    ///
    /// # Cancellation
    /// Cancel-safe. Nothing is reported.
    pub async fn progress(
        &self,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    ) -> Result<(), ClientError> {
        self.report(CallReport::Progress { progress: Some(progress), total, message }).await
    }

    /// Sends a log message at a level of the protocol: `debug`, `info`, `notice`, `warning`, `error`,
    /// `critical`, `alert`, `emergency`. The client gets messages at or above the level that it has set.
    ///
    /// # Errors
    /// [`ClientError::Level`], [`ClientError::Gone`].
    ///
    /// # Cancellation
    /// Cancel-safe. Nothing is sent.
    pub async fn log(&self, level: &str, data: Value) -> Result<(), ClientError> {
        let unknown = |_| ClientError::Level(level.to_owned());
        let level = serde_json::from_value(Value::String(level.to_owned())).map_err(unknown)?;
        self.report(CallReport::Log { level, data }).await
    }

    /// Asks the person behind the client to fill in a form. A flat JSON schema describes the form.
    ///
    /// # Errors
    /// [`ClientError`]: the client does not support elicitation, gave an invalid answer, or is gone.
    ///
    /// # Cancellation
    /// Cancel-safe. The answer is discarded.
    pub async fn elicit(&self, message: &str, schema: Value) -> Result<ElicitationAnswer, ClientError> {
        let schema_error = |error: serde_json::Error| ClientError::Schema(error.to_string());
        let schema = serde_json::from_value(schema).map_err(schema_error)?;
        let (answer_sender, answer_receiver) = oneshot::channel();
        self.report(CallReport::Elicit { message: message.to_owned(), schema, answer: answer_sender })
            .await?;
        // The sender was dropped unused: the call has ended, or the client has left.
        answer_receiver.await.unwrap_or(Err(ClientError::Gone))
    }

    async fn report(&self, report: CallReport) -> Result<(), ClientError> {
        self.reports.send(report).await.map_err(|_unsent| ClientError::Gone)
    }
}

/// Returns the protocol's name of an action.
pub(super) fn action(action: &ElicitationAction) -> &'static str {
    match action {
        ElicitationAction::Accept => "accept",
        ElicitationAction::Decline => "decline",
        _ => "cancel",
    }
}
