//! Hooks: code of the embedding program in the way of every call of a registry, before it runs and after.
//!
//! A hook can refuse a call, change its arguments, mend arguments that do not fit, and change what came of it. It can
//! widen nothing: arguments that it changes are checked, admitted and authorized like any others, and asked about where
//! the policy asks.
//!
//! ```
//! use portcullis_tools::hook::{BeforeCall, CallHook, HookedCall};
//! use portcullis_types::async_trait;
//!
//! /// Keeps one folder for people.
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

/// How long a hook may take for one answer before a call, and all of them together for what came of one: 10 s.
pub const HOOK_TIME: Duration = Duration::from_secs(10);

/// A program's own step in the way of calls. Hooks are asked in the order in which they were added, and in the opposite
/// order when a call is over. Steps of operations have none: the operation itself was asked about.
///
/// # Cancellation
/// An answer that nobody waits for any more is dropped.
#[async_trait]
pub trait CallHook: Send + Sync {
    /// Decides on a call whose arguments fit its tool, before policy and approvals do: each set of arguments that the
    /// call may run with, also those that an approver has changed. Asked before the rate is counted, and before the call
    /// has a place: keep it short. A panic, or no answer within [`HOOK_TIME`], refuses the call; so do arguments that do
    /// not fit. Default: allow.
    async fn before(&self, _call: &HookedCall) -> BeforeCall {
        BeforeCall::Allow
    }

    /// Gives arguments, as JSON text, for a call whose own do not fit its tool, and are not mended without a guess; they
    /// are checked like the call's own, once. Never asked for calls of a tool that declares itself privileged. A panic,
    /// or no answer within [`HOOK_TIME`], mends nothing. Default: none, and the model reads what is wrong.
    async fn repair(&self, _call: &MisfitCall) -> Option<String> {
        None
    }

    /// Takes what came of a call that ran, and gives what is shown of it; the registry then bounds that like any
    /// result. A result may become an error, an error no result: it stays. A panic, or no answer in time, withholds what
    /// came of the call. All hooks together have [`HOOK_TIME`] beyond the call's own deadline, and a second once the
    /// caller has given up or its turn is over. Partial results that a tool reported went before it. Default: as it is.
    async fn after(
        &self,
        _call: &HookedCall,
        outcome: Result<ToolOutput, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
        outcome
    }
}

/// A call as a hook sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HookedCall {
    /// The call.
    pub call_id: String,
    /// The agent that makes it.
    pub agent_id: String,
    /// Its run.
    pub run_id: String,
    /// The tool's own name, whatever alias it was called by.
    pub tool: String,
    /// The tier that the tool declares.
    pub tier: Option<SafetyTier>,
    /// The arguments, which fit the tool.
    pub arguments: Value,
}

/// A call whose arguments do not fit its tool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MisfitCall {
    /// The call.
    pub call_id: String,
    /// The tool's own name.
    pub tool: String,
    /// What the tool takes, as JSON Schema.
    pub parameters: Value,
    /// The arguments' text, as the model wrote it.
    pub arguments: String,
    /// What is wrong with them.
    pub error: ToolError,
}

/// What a hook says to a call before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BeforeCall {
    /// Nothing.
    Allow,
    /// It shall have other arguments. Hooks that come later see these; those that came before do not, so add one that
    /// refuses behind one that changes.
    Modify {
        /// The JSON text of the arguments.
        arguments: String,
    },
    /// It shall not run.
    Deny {
        /// Why, for the model.
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
