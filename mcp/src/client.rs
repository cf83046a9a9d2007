//! What a tool of this process may ask of the client that calls it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use portcullis_types::ToolContext;
use rmcp::model::{ElicitationAction, ElicitationSchema};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use super::log::Level;

/// The clients of the calls that run, by call. A server and the tools that speak with its clients hold the same.
#[derive(Clone, Default)]
pub struct Clients(Arc<Mutex<HashMap<String, Client>>>);

/// The client that made a call. It can be spoken with while the call runs.
#[derive(Debug, Clone)]
pub struct Client {
    reports: mpsc::Sender<Report>,
}

/// What a call says to its client before it ends.
#[derive(Debug)]
pub(super) enum Report {
    /// How far it is.
    Progress { progress: Option<f64>, total: Option<f64>, message: Option<String> },
    /// It runs, and is no further.
    Alive,
    /// Something worth knowing.
    Log { level: Level, data: Value },
    /// A question to the person behind the client.
    Elicit {
        message: String,
        schema: ElicitationSchema,
        answer: oneshot::Sender<Result<Elicited, ClientError>>,
    },
}

/// What a person answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Elicited {
    /// `accept`, `decline` or `cancel`.
    pub action: &'static str,
    /// What was filled in, where it was accepted. It comes from the client as it is: check it.
    pub content: Option<Value>,
}

/// Why a client cannot be spoken with.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// The call has ended, or the client is gone.
    #[error("the client is gone")]
    Gone,
    /// The client takes no questions.
    #[error("the client does not support elicitation")]
    Unsupported,
    /// The schema is none that a client could ask by.
    #[error("the schema cannot be asked by: {0}")]
    Schema(String),
    /// The level is none of the protocol's.
    #[error("there is no log level `{0}`")]
    Level(String),
    /// The client answered with an error.
    #[error("the client refused: {0}")]
    Refused(String),
}

impl Clients {
    /// The client of the call that a tool serves; none where the call came another way.
    #[must_use]
    pub fn of(&self, ctx: &ToolContext) -> Option<Client> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&ctx.call_id).cloned()
    }

    /// Makes a call's client known until the guard is dropped.
    pub(super) fn enter(&self, call_id: &str, reports: mpsc::Sender<Report>) -> ClientGuard {
        let client = Client { reports };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(call_id.to_owned(), client);
        ClientGuard { clients: self.clone(), call_id: call_id.to_owned() }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clients({})", self.0.lock().unwrap_or_else(PoisonError::into_inner).len())
    }
}

/// Forgets a call's client at the call's end.
#[derive(Debug)]
pub(super) struct ClientGuard {
    clients: Clients,
    call_id: String,
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.clients.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.call_id);
    }
}

impl Client {
    /// Says how far the call is, where the client asked to know; each number above the last.
    ///
    /// # Errors
    /// [`ClientError::Gone`].
    ///
    /// # Cancellation
    /// Safe; nothing is said.
    pub async fn progress(
        &self,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    ) -> Result<(), ClientError> {
        self.report(Report::Progress { progress: Some(progress), total, message }).await
    }

    /// Says something worth knowing, at a level of the protocol's: `debug`, `info`, `notice`, `warning`, `error`,
    /// `critical`, `alert`, `emergency`. The client gets what is of the level that it set, or above.
    ///
    /// # Errors
    /// [`ClientError::Level`], [`ClientError::Gone`].
    ///
    /// # Cancellation
    /// Safe; nothing is said.
    pub async fn log(&self, level: &str, data: Value) -> Result<(), ClientError> {
        let unknown = |_| ClientError::Level(level.to_owned());
        let level = serde_json::from_value(Value::String(level.to_owned())).map_err(unknown)?;
        self.report(Report::Log { level, data }).await
    }

    /// Asks the person behind the client, by a flat JSON schema of what is to be filled in.
    ///
    /// # Errors
    /// [`ClientError`]: the client takes no questions, gave none of the answers, or is gone.
    ///
    /// # Cancellation
    /// Safe; the answer is thrown away.
    pub async fn elicit(&self, message: &str, schema: Value) -> Result<Elicited, ClientError> {
        let wrong = |error: serde_json::Error| ClientError::Schema(error.to_string());
        let schema = serde_json::from_value(schema).map_err(wrong)?;
        let (answer, answered) = oneshot::channel();
        self.report(Report::Elicit { message: message.to_owned(), schema, answer }).await?;
        answered.await.unwrap_or(Err(ClientError::Gone))
    }

    async fn report(&self, report: Report) -> Result<(), ClientError> {
        self.reports.send(report).await.map_err(|_unsent| ClientError::Gone)
    }
}

/// The protocol's word for an action.
pub(super) fn action(action: &ElicitationAction) -> &'static str {
    match action {
        ElicitationAction::Accept => "accept",
        ElicitationAction::Decline => "decline",
        _ => "cancel",
    }
}
