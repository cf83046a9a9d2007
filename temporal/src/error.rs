//! [`WorkerError`]: why a worker cannot work.

use std::error::Error;

use thiserror::Error;

/// Why a worker cannot begin, or has ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The server does not answer.
    #[error("no Temporal server answers at {address}")]
    Unreachable {
        /// The address of the server.
        address: String,
        /// The connection's error.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The namespace does not exist, or the server does not allow this client to use it.
    #[error(
        "the Temporal server has no namespace `{}` for this worker; it is made with: temporal operator namespace \
         create {}", .namespace.escape_debug(), .namespace.escape_debug()
    )]
    Namespace {
        /// The name of the namespace.
        namespace: String,
        /// The server's answer.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// This worker does not offer a placed tool, so the model would not know the tool.
    #[error("the tool `{}` is placed, but this worker does not offer it, so the model would not know it", .tool.escape_debug())]
    PlacedTool {
        /// The name of the placed tool.
        tool: String,
    },
    /// The SDK has failed.
    #[error("the worker cannot {action}")]
    Sdk {
        /// The operation, as a verb with its object.
        action: &'static str,
        /// The SDK's error.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl WorkerError {
    pub(crate) fn sdk(action: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Sdk { action, source: source.into() }
    }
}
