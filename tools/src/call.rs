//! The caller of a call, and its limits, listeners and approver.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use portcullis_policy::FlowLabel;
use portcullis_types::{
    CancellationToken, EventFn, ProgressFn, ToolCall, ToolContext, ToolError, ToolEvent, ToolName,
    ToolUpdateFn, async_trait,
};

use crate::{
    approval::{ApprovalPolicy, Approver},
    audit::SharedText,
    external::ExternalCalls,
    sandbox::TransferEndpoint,
    slots::CallSlot,
    web::{RequestOptions, SharedRequestOutcome},
};

/// Creates a call with a random id.
#[must_use]
pub fn new_call(tool: impl Into<String>, arguments: impl Into<String>) -> ToolCall {
    ToolCall { id: random_id("call"), tool: tool.into(), arguments: arguments.into() }
}

/// Returns an unguessable id: a prefix and 128 random bits.
pub(crate) fn random_id(prefix: &str) -> String {
    let bits: u128 = rand::random();
    format!("{prefix}_{bits:032x}")
}

/// Returns the error of a call that was cancelled before its backend started.
pub(crate) fn cancelled_before_run_error() -> ToolError {
    ToolError::cancelled("the call was cancelled before it ran")
}

/// Returns the error of a call that was cancelled while it ran.
pub(crate) fn cancelled_error() -> ToolError {
    ToolError::cancelled("the call was cancelled")
}

/// Listener for a guest's standard error. Called at most once per attempt at a call, in the caller's process,
/// before the result arrives.
pub type StderrFn = Arc<dyn Fn(&str) + Send + Sync>;

/// Called before a call's first effect; an error stops the call. A program that stores its runs records here
/// that the call has begun.
#[async_trait]
pub trait CallStartListener: Send + Sync {
    /// Called once for a call that may run, after all checks and approvals, and before its first effect. Not
    /// called for the steps of an operation or for nested calls: they belong to the outer call.
    ///
    /// # Errors
    /// The error becomes the call's error, and the call has no effect.
    ///
    /// # Cancellation
    /// The future is dropped when the call is cancelled.
    async fn on_start(&self, call: &StartingCall) -> Result<(), ToolError>;
}

/// A call that is about to run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StartingCall {
    /// The call's id.
    pub call_id: String,
    /// The tool's canonical name, even if an alias was called.
    pub tool: String,
    /// The JSON text of the arguments that the call runs with.
    pub arguments: String,
    /// Whether the call can be retried safely: the tool only reads, or a trusted declaration says that it is
    /// idempotent.
    pub may_repeat: bool,
    /// The most labels that the call can add to its run. If the call is interrupted, it may have read all of
    /// this data.
    pub labels: BTreeSet<FlowLabel>,
}

/// The caller of a call, with its limits, listeners and approver.
///
/// [`Caller::new`] lists the defaults: no approver, so calls that need an approval are denied; no listeners; no
/// deadline other than the call's own.
#[derive(Clone)]
#[non_exhaustive]
pub struct Caller {
    /// The agent's id. Rate limits, stored outputs and shell sessions are separate for each agent, unless the
    /// client [chose the name itself](Caller::named_by_itself).
    pub agent_id: String,
    /// The run's id. Stored outputs and shell sessions are separate for each run.
    pub run_id: String,
    /// The id of the agent's space, if it has one.
    pub space_id: Option<String>,
    /// The id that joins the calls of one operation.
    pub operation_id: Option<String>,
    /// Cancelled when the caller gives up.
    pub cancel: CancellationToken,
    /// An allowlist of the tools that the caller may call and is offered. Calls of other tools are refused
    /// with the code `tool_not_given`. Default: none, so the policy alone decides.
    pub tools: Option<Arc<BTreeSet<ToolName>>>,
    /// When the caller's turn ends. No call runs longer. Hooks get one more second to process the result.
    pub turn_deadline: Option<Instant>,
    /// The caller's approval policy, in addition to the policy file. Default: none.
    pub approval_policy: Option<Arc<dyn ApprovalPolicy>>,
    /// The approver. Default: none, so calls that need an approval are denied.
    pub approver: Option<Arc<dyn Approver>>,
    /// Called before each call's first effect; an error stops the call. Default: none.
    pub start_listener: Option<Arc<dyn CallStartListener>>,
    /// Keeps the pending calls of external tools. Default: none, so such calls fail.
    pub external_calls: Option<Arc<dyn ExternalCalls>>,
    /// Receives partial results.
    pub on_update: Option<ToolUpdateFn>,
    /// Receives progress texts.
    pub on_progress: Option<ProgressFn>,
    /// Receives events.
    pub on_event: Option<EventFn>,
    /// Receives a guest's standard error, bounded, after the guest has ended: the message of a panic, or the cause of
    /// an `internal`. The text is for the tool's author. It is untrusted and may contain data that a model must not
    /// read, so show it escaped, on the author's terminal only, and never in a result.
    pub on_stderr: Option<StderrFn>,
    /// The slot of the enclosing call, if a tool makes this call.
    pub(crate) slot: Option<CallSlot>,
    /// Set if the call is a step of an operation.
    pub(crate) operation_step: Option<OperationStep>,
    /// Whether the client chose the agent's name itself.
    pub(crate) is_named_by_itself: bool,
}

/// The owner of a rate limit or a shell session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    /// `None` if the name is unverified (see [`Caller::named_by_itself`]).
    pub(crate) agent: Option<Arc<str>>,
    /// `None` if the owner is the agent across all its runs.
    pub(crate) run: Option<Arc<str>>,
}

/// Marks a call as a step of an operation. The operation has already been counted and, if needed, approved
/// together with the grants of its steps, so a step is neither approved nor counted separately.
#[derive(Debug, Clone, Default)]
pub(crate) struct OperationStep {
    /// Whether an approver has approved the operation.
    pub(crate) is_approved: bool,
    /// The step's end of the transfer, if the operation is a transfer.
    pub(crate) transfer: Option<TransferEndpoint>,
    /// Receives the outcome of the step's request, if the step makes one.
    pub(crate) request_outcome: Option<SharedRequestOutcome>,
    /// The limits of the request, if the operation follows redirects itself.
    pub(crate) request_options: Option<RequestOptions>,
    /// The id of the operation's call. Data that the step reads is labelled with this id.
    pub(crate) reads_as: Option<String>,
}

/// The parts of an operation's call that its steps inherit.
pub(crate) struct OperationContext {
    /// The id that joins the rows of the call and its steps.
    pub(crate) operation_id: Option<SharedText>,
    /// The id of the call itself. The steps' requests are recorded under it.
    pub(crate) call_id: String,
    /// Whether an approver has approved the call, including the grants of its steps.
    pub(crate) is_approved: bool,
    pub(crate) time_limit: Duration,
    pub(crate) deadline: Instant,
    /// The slot of the call, in which the steps run.
    pub(crate) slot: CallSlot,
    /// Receives the steps' progress.
    pub(crate) on_progress: Option<ProgressFn>,
}

impl Caller {
    /// A caller with the defaults.
    #[must_use]
    pub fn new(agent_id: impl Into<String>, run_id: impl Into<String>) -> Self {
        Self {
            agent_id: agent_id.into(),
            run_id: run_id.into(),
            space_id: None,
            operation_id: None,
            cancel: CancellationToken::new(),
            tools: None,
            turn_deadline: None,
            approval_policy: None,
            approver: None,
            start_listener: None,
            external_calls: None,
            on_update: None,
            on_progress: None,
            on_event: None,
            on_stderr: None,
            slot: None,
            operation_step: None,
            is_named_by_itself: false,
        }
    }

    /// Creates a caller whose client chose the agent's name, as in a protocol in which clients name
    /// themselves. The name is only shown to people, in audit rows and questions. Another caller can have the
    /// same name, so all state, including rate limits, is separated by run alone. The run must therefore be
    /// an id that this process generated and gave to no other caller.
    #[must_use]
    pub fn named_by_itself(name: impl Into<String>, run_id: impl Into<String>) -> Self {
        Self { is_named_by_itself: true, ..Self::new(name, run_id) }
    }

    /// Returns the owner whose rate limit the call counts towards.
    pub(crate) fn counted_as(&self) -> Owner {
        if self.is_named_by_itself {
            return self.owner();
        }
        Owner { agent: Some(self.agent_id.as_str().into()), run: None }
    }

    /// Returns the owner of state that outlives the call, such as a shell session. It is always this run
    /// alone.
    pub(crate) fn owner(&self) -> Owner {
        let agent = (!self.is_named_by_itself).then(|| self.agent_id.as_str().into());
        Owner { agent, run: Some(self.run_id.as_str().into()) }
    }

    /// Creates the caller of calls that a tool makes, with the same agent, run, cancellation and deadline.
    /// The nested calls share the slot of the tool's own call, so a tool that calls tools never waits for its
    /// own slot.
    ///
    /// The approver and the approval policy are inherited too, so a tool cannot bypass them.
    #[must_use]
    pub fn nested(ctx: &ToolContext) -> Self {
        let parent = ctx.extensions.get::<NestingContext>();
        let base = match parent {
            Some(parent) => {
                // A call that made nested calls is not retried.
                parent.has_called.store(true, Ordering::Relaxed);
                parent.caller.clone()
            }
            None => Self::new(ctx.agent_id.clone(), ctx.run_id.clone()),
        };
        Self {
            cancel: ctx.cancel.child_token(),
            turn_deadline: ctx.deadline,
            // The tool itself forwards the reports of its nested calls.
            on_update: None,
            on_progress: None,
            operation_step: None,
            ..base
        }
    }

    /// Whether [`Caller::tools`] lets the caller call this tool. A step of an operation is always allowed: it
    /// belongs to the operation's call.
    pub(crate) fn may_call(&self, tool: &str) -> bool {
        self.operation_step.is_some() || self.tools.as_ref().is_none_or(|tools| tools.contains(tool))
    }

    /// Whether a listener wants the progress reports of a running tool.
    pub(crate) fn watches_frames(&self) -> bool {
        self.on_update.is_some() || self.on_progress.is_some() || self.on_event.is_some()
    }

    pub(crate) fn emit(&self, event: &ToolEvent) {
        if let Some(listener) = &self.on_event {
            listener(event);
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("agent_id", &self.agent_id)
            .field("run_id", &self.run_id)
            .field("operation_id", &self.operation_id)
            .finish_non_exhaustive()
    }
}

/// The caller and slot of a native tool's call, kept in the tool's context.
#[derive(Debug)]
pub(crate) struct NestingContext {
    pub(crate) caller: Caller,
    /// Whether the tool has made nested calls.
    pub(crate) has_called: Arc<AtomicBool>,
}
