//! External tools: a person or another program submits their results, possibly after the run stopped waiting.

use std::time::Duration;

use portcullis_policy::{OutputBytes, PinStatus, ToolDescriptor, ToolOrigin};
use portcullis_types::{FunctionDecl, SafetyTier, ToolError, ToolMeta, ToolPolicy, async_trait};
use serde_json::Value;

use crate::{digest, registered::parse_name, registry::RegistryError};

/// How long a pending call accepts a result, unless the tool sets another time: 24 hours.
pub const EXTERNAL_CALL_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// A tool whose results are submitted from outside.
#[derive(Debug, Clone)]
pub struct ExternalTool {
    /// The declaration for the model.
    pub decl: FunctionDecl,
    /// A name for people. Default: the tool's own name.
    pub label: Option<String>,
    /// The tier. `None` counts as side-effecting.
    pub tier: Option<SafetyTier>,
    /// Whether every call needs an approval.
    pub policy: ToolPolicy,
    /// Whether the run waits for the result, up to [`ExternalTool::timeout`]. Otherwise each call becomes
    /// pending immediately.
    pub waits: bool,
    /// How long the run waits for the result. The policy may shorten it.
    pub timeout: Duration,
    /// How long a call accepts a result, counted from its start. Never shorter than the run's wait.
    pub lifetime: Duration,
    /// Hints for the registry.
    pub meta: ToolMeta,
}

impl ExternalTool {
    /// Creates a tool with this declaration: no tier, no required approval, a wait of 30 s, and expiry after
    /// [`EXTERNAL_CALL_TTL`].
    #[must_use]
    pub fn new(decl: FunctionDecl) -> Self {
        Self {
            decl,
            label: None,
            tier: None,
            policy: ToolPolicy::Auto,
            waits: true,
            timeout: portcullis_types::DEFAULT_TIMEOUT,
            lifetime: EXTERNAL_CALL_TTL,
            meta: ToolMeta::default(),
        }
    }

    /// Returns the descriptor that the policy judges the tool by.
    pub(crate) fn descriptor(&self) -> Result<ToolDescriptor, RegistryError> {
        let name = parse_name(&self.decl.name, &self.decl.name)?;
        Ok(ToolDescriptor {
            name,
            declared_tier: self.tier,
            declared_policy: self.policy,
            declared_timeout: Some(self.timeout),
            declared_max_output: self.meta.output_cap_bytes.map(OutputBytes),
            roles: Vec::new(),
            origin: ToolOrigin::External,
            pin_status: PinStatus::Unpinned,
        })
    }
}

/// A call of an external tool that is about to start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExternalCall {
    /// The id under which the result is submitted: a hash of agent, run and call, so that a retried call
    /// finds the pending one.
    pub id: String,
    /// The agent that makes the call.
    pub agent: String,
    /// The name of the called tool.
    pub tool: String,
    /// The JSON text of the arguments.
    pub arguments: String,
    /// Whether the run waits for the result.
    pub waits: bool,
    /// When the call expires, in milliseconds since the Unix epoch.
    pub expires_at: i64,
}

/// Returns the id under which the result of a call is submitted: `call_` and a hash of its agent, its run,
/// and its id in the run.
#[must_use]
pub fn external_call_id(agent: &str, run: &str, call: &str) -> String {
    format!("call_{}", digest::hash_parts([agent, run, call]))
}

/// The state of an external call.
#[derive(Debug, Clone, PartialEq)]
pub enum ExternalCallState {
    /// There is no result yet, and the run waits.
    Waiting,
    /// There is no result yet, and the run has continued. A result enters the run as a message.
    Pending,
    /// The result has been submitted.
    Resolved(Value),
    /// The call accepts no result, because it has expired or was cancelled.
    Closed,
}

/// A call that [`ExternalCalls::add`] has added or found.
#[derive(Debug, Clone, PartialEq)]
pub struct AddedCall {
    /// The call's state. A call that existed before may already have its result.
    pub state: ExternalCallState,
    /// When the call expires, in milliseconds since the Unix epoch.
    pub expires_at: i64,
}

/// Keeps the calls of external tools until their results are submitted. If a submission and a timeout race,
/// exactly one of them takes effect.
#[async_trait]
pub trait ExternalCalls: Send + Sync {
    /// Adds a call. Idempotent: a call that already exists is left unchanged, and its state is returned.
    ///
    /// # Errors
    /// The call's error, if the call cannot be kept.
    async fn add(&self, call: &ExternalCall) -> Result<AddedCall, ToolError>;

    /// Waits until a call is resolved or closed. Never returns [`ExternalCallState::Waiting`].
    ///
    /// # Errors
    /// The call's error, if its state cannot be read.
    ///
    /// # Cancellation
    /// Safe: the call is unaffected.
    async fn wait(&self, id: &str) -> Result<ExternalCallState, ToolError>;

    /// Ends the run's wait: the call becomes [`ExternalCallState::Pending`], unless it was resolved or closed
    /// first. Returns the resulting state.
    ///
    /// # Errors
    /// The call's error, if its state cannot be changed.
    async fn stop_waiting(&self, id: &str) -> Result<ExternalCallState, ToolError>;

    /// Cancels a call, unless it is resolved or closed.
    ///
    /// # Errors
    /// The call's error, if its state cannot be changed. The call then stays until it expires.
    async fn cancel(&self, id: &str) -> Result<(), ToolError>;
}
