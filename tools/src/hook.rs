//! Hooks: code of the embedding program that sees every call of a registry before and after it runs.
//!
//! A hook can refuse a call, change its arguments, repair arguments that do not fit, and change the outcome. It cannot
//! widen a grant: changed arguments are checked, admitted and authorized like any others, and need an approval where
//! the policy requires one.
//!
//! ```
//! use portcullis_tools::hook::{BeforeCall, CallHook, HookedCall};
//! use portcullis_types::async_trait;
//!
//! /// Reserves one folder for people.
//! struct HandsOff;
//!
//! #[async_trait]
//! impl CallHook for HandsOff {
//!     async fn before(&self, call: &HookedCall) -> BeforeCall {
//!         match call.arguments["path"].as_str() {
//!             Some(path) if path.starts_with("/shared/people") => {
//!                 BeforeCall::Deny { reason: "that folder is for people".to_owned() }
//!             }
//!             _ => BeforeCall::Allow,
//!         }
//!     }
//! }
//! # fn register() -> Result<(), portcullis_tools::BootstrapError> {
//! let registry = portcullis_tools::ToolRegistry::builder().default_tools().hook(HandsOff).build()?;
//! # drop(registry);
//! # Ok(())
//! # }
//! ```

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use portcullis_types::{SafetyTier, ToolError, ToolOutput};
use serde_json::Value;

/// The timeout of each hook before a call, and of all hooks together after a call: 10 s.
pub const HOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// A hook on calls. Hooks run in the order in which they were added, and after the call in reverse order. Steps of an
/// operation run no hooks, because the hooks have seen the operation itself.
///
/// # Cancellation
/// The future of a hook is dropped when its caller no longer waits for it.
#[async_trait]
pub trait CallHook: Send + Sync {
    /// Decides on a call with valid arguments, before the policy and the approver do. Runs once for each set
    /// of arguments that the call may run with, including arguments that an approver changed. Runs before the
    /// call is counted towards the rate limit and gets a slot, so keep it short. A panic, no answer within
    /// [`HOOK_TIMEOUT`], or invalid new arguments refuse the call. Default: allow.
    async fn before(&self, _call: &HookedCall) -> BeforeCall {
        BeforeCall::Allow
    }

    /// Returns arguments, as JSON text, for a call whose own arguments are invalid and have no lossless
    /// repair. The new arguments are validated once, like the call's own. Never runs for a tool that declares
    /// itself privileged. A panic, or no answer within [`HOOK_TIMEOUT`], repairs nothing. Default: none, and the
    /// model reads the fault.
    async fn repair(&self, _call: &InvalidCall) -> Option<String> {
        None
    }

    /// Receives the outcome of a call that ran, and returns the outcome to show. The registry then truncates
    /// it like any result. A hook may turn a result into an error, but not an error into a result. A panic or
    /// a timeout withholds the outcome. All hooks together have [`HOOK_TIMEOUT`], even past the call's own
    /// deadline, but only one second after the caller has cancelled or its turn has ended. Partial results
    /// have already been sent. Default: the outcome is unchanged.
    async fn after(
        &self,
        _call: &HookedCall,
        outcome: Result<ToolOutput, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
        outcome
    }
}

/// A call, as hooks see it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HookedCall {
    /// The call's id.
    pub call_id: String,
    /// The id of the agent that makes the call.
    pub agent_id: String,
    /// The id of the caller's run.
    pub run_id: String,
    /// The tool's canonical name, even if an alias was called.
    pub tool: String,
    /// The declared tier of the tool.
    pub tier: Option<SafetyTier>,
    /// The validated arguments.
    pub arguments: Value,
}

/// A call whose arguments do not fit its tool's schema.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InvalidCall {
    /// The call's id.
    pub call_id: String,
    /// The tool's canonical name.
    pub tool: String,
    /// The tool's parameters, as JSON Schema.
    pub parameters: Value,
    /// The arguments' text, as the model wrote it.
    pub arguments: String,
    /// The error of the arguments.
    pub error: ToolError,
}

/// A hook's answer before a call runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BeforeCall {
    /// Lets the call proceed.
    Allow,
    /// Replaces the call's arguments. Later hooks see the new arguments, earlier hooks do not, so add hooks
    /// that refuse after hooks that change.
    Modify {
        /// The JSON text of the arguments.
        arguments: String,
    },
    /// Refuses the call.
    Deny {
        /// The reason, for the model.
        reason: String,
    },
}

/// The hooks of a registry.
#[derive(Clone, Default)]
pub(crate) struct Hooks(Arc<[Arc<dyn CallHook>]>);

impl Hooks {
    pub(crate) fn new(hooks: Vec<Arc<dyn CallHook>>) -> Self {
        Self(hooks.into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Arc<dyn CallHook>> {
        self.0.iter()
    }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hooks({})", self.0.len())
    }
}
