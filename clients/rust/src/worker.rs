//! [`Worker`]: answers the calls of an agent.

use std::{collections::HashMap, fmt, num::NonZeroUsize, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use crate::{ClientError, Gateway, tool::Tool};

mod seen_calls;
mod session;
mod submit;
#[cfg(test)]
mod tests;

/// The default of [`Worker::concurrency`]: how many calls a worker answers concurrently.
pub const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// How long a stopping worker waits for calls in flight.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// Answers the calls of an agent: it listens, calls a function for each call, and submits the function's
/// return value.
///
/// A call is answered at least once. If the program dies, or a result cannot be submitted for minutes, the
/// function is called again for the same call. The gateway accepts one result for a call, so the agent reads
/// only one.
pub struct Worker {
    gateway: Gateway,
    tools: HashMap<String, Tool>,
    concurrency: NonZeroUsize,
}

impl Worker {
    /// Creates a worker without functions, which answers nothing.
    #[must_use]
    pub fn new(gateway: Gateway) -> Self {
        Self { gateway, tools: HashMap::new(), concurrency: DEFAULT_CONCURRENCY }
    }

    /// Registers a function for the calls of this tool. It replaces an earlier function for the same name.
    /// Calls of tools without a function are left to other programs.
    ///
    /// The arguments of a call are deserialized, and the value in `Ok` is the result. These cases become the
    /// result `{"error": "…"}`, which the agent reads: an `Err` with its text, arguments that do not fit `T`,
    /// a panic (its text is only logged), and a result of more than 1 MiB.
    ///
    /// A function has no timeout. A function that never returns occupies one of the
    /// [`concurrency`](Self::concurrency) slots forever.
    ///
    /// A function with state clones it before it creates its future:
    ///
    /// ```no_run
    /// # use std::{io, sync::Arc};
    /// # fn with_state(worker: portcullis_client::Worker, names: Arc<Vec<String>>) -> portcullis_client::Worker {
    /// worker.tool("nameOf", move |index: usize| {
    ///     let names = Arc::clone(&names);
    ///     async move { names.get(index).cloned().ok_or_else(|| io::Error::other("there is no such name")) }
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn tool<T, R, E, F, Fut>(mut self, name: impl Into<String>, function: F) -> Self
    where
        T: DeserializeOwned,
        R: Serialize,
        E: fmt::Display,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.tools.insert(name.into(), Tool::new(function));
        self
    }

    /// Sets how many calls are answered concurrently. Default: [`DEFAULT_CONCURRENCY`]. Further calls wait at
    /// the gateway.
    #[must_use]
    pub fn concurrency(mut self, calls: NonZeroUsize) -> Self {
        self.concurrency = calls;
        self
    }

    /// Answers the calls of an agent until `shutdown` completes: those that are open now, and new ones. Then
    /// no further call begins, and calls in flight have [`SHUTDOWN_GRACE`] to end.
    ///
    /// Reconnects after the connection was lost or silent for 60 s, with pauses that grow from 1 s to 30 s. A
    /// result that could not be submitted for such a reason is submitted again.
    ///
    /// # Errors
    /// The first error that is not [transient](ClientError::is_transient), such as the statuses 401 (the
    /// token is unknown), 403 and 404 (there is no such agent, or the token may not see it). Calls in flight
    /// have the same time to end.
    ///
    /// # Cancellation
    /// If the future is dropped, the running functions are dropped at their next await, and their results are
    /// lost.
    pub async fn run(&self, agent_id: &str, shutdown: impl Future<Output = ()>) -> Result<(), ClientError> {
        let mut session = session::WorkerSession::new(self, agent_id);
        let outcome = tokio::select! {
            // `biased`: a shutdown takes precedence over an error at the same moment.
            biased;
            () = shutdown => Ok(()),
            error = session.listen() => Err(error),
        };
        session.finish().await;
        outcome
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&String> = self.tools.keys().collect();
        names.sort();
        f.debug_struct("Worker")
            .field("gateway", &self.gateway)
            .field("tools", &names)
            .field("concurrency", &self.concurrency)
            .finish()
    }
}
