//! The caller of a call, and its terms.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use portcullis_types::{
    CancellationToken, EventFn, ProgressFn, ToolCall, ToolContext, ToolEvent, ToolUpdateFn,
};

use crate::{
    approval::{ApprovalPolicy, Approver},
    audit::Text,
    sandbox::TransferEnd,
    slots::CallSlot,
    web::{FetchedHop, HopTerms},
};

/// A call under a fresh random id.
#[must_use]
pub fn new_call(tool: impl Into<String>, arguments: impl Into<String>) -> ToolCall {
    ToolCall { id: random_id("call"), tool: tool.into(), arguments: arguments.into() }
}

/// An unguessable id: a prefix and 128 random bits.
pub(crate) fn random_id(prefix: &str) -> String {
    let bits: u128 = rand::random();
    format!("{prefix}_{bits:032x}")
}

/// Listener for a guest's standard error. Called at most once per attempt at a call, on the caller's side,
/// before the result.
pub type StderrFn = Arc<dyn Fn(&str) + Send + Sync>;

/// The caller of a call, and its terms.
///
/// [`Caller::new`] lists the defaults: no approver, so calls that need an approval are denied; no listeners;
/// no deadline but the call's own.
#[derive(Clone)]
#[non_exhaustive]
pub struct Caller {
    /// The agent. Rate limits, stored outputs and shell sessions are kept apart by it, unless the client
    /// [chose the name itself](Caller::named_by_itself).
    pub agent_id: String,
    /// The run; stored outputs and shell sessions are kept apart by it.
    pub run_id: String,
    /// The agent's space, if it has one.
    pub space_id: Option<String>,
    /// The id that joins the calls of one operation.
    pub operation_id: Option<String>,
    /// Fires when the caller gives up.
    pub cancel: CancellationToken,
    /// When the caller's turn ends. No call runs past it; hooks get one second more for its result.
    pub turn_deadline: Option<Instant>,
    /// The caller's approval policy, beside the policy file. Default: none.
    pub approval_policy: Option<Arc<dyn ApprovalPolicy>>,
    /// The approver. Default: none, so calls that need an approval are denied.
    pub approver: Option<Arc<dyn Approver>>,
    /// Takes partial results.
    pub on_update: Option<ToolUpdateFn>,
    /// Takes progress texts.
    pub on_progress: Option<ProgressFn>,
    /// Takes events.
    pub on_event: Option<EventFn>,
    /// Takes a guest's standard error, bounded, after the guest has ended: the message of a panic, the cause
    /// of an `internal`. It is for the tool's author: untrusted text that may name what a model must not
    /// read. Show it escaped, on the author's terminal, and in no result.
    pub on_stderr: Option<StderrFn>,
    /// The slot of the enclosing call, if a tool makes this call.
    pub(crate) slot: Option<CallSlot>,
    /// Set where the call is a step of an operation.
    pub(crate) operation_step: Option<OperationStep>,
    /// Whether the client chose the agent's name itself.
    pub(crate) is_named_by_itself: bool,
}

/// The owner of a rate or a shell session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    /// None where the name proves nothing (see [`Caller::named_by_itself`]).
    pub(crate) agent: Option<Arc<str>>,
    /// None where the owner is the agent across all runs.
    pub(crate) run: Option<Arc<str>>,
}

/// Marks a call as a step of an operation. The operation was counted and, if needed, approved with the steps'
/// grants in view; so a step is neither asked about nor counted again.
#[derive(Debug, Clone, Default)]
pub(crate) struct OperationStep {
    /// Whether an approver has approved of the operation.
    pub(crate) is_approved: bool,
    /// Which end of a transfer the step is, if it is one.
    pub(crate) transfer: Option<TransferEnd>,
    /// Where the step leaves what came of its request, if it makes one.
    pub(crate) response: Option<FetchedHop>,
    /// The terms of that request, if the operation follows its redirects itself.
    pub(crate) hop: Option<HopTerms>,
    /// The id of the operation's call, by which what the step reads is labelled.
    pub(crate) reads_as: Option<String>,
}

/// The parts of an operation's call that its steps take over.
pub(crate) struct OperationContext {
    /// The id that joins the rows of the call and its steps.
    pub(crate) operation_id: Option<Text>,
    /// The id of the call itself: what its steps request, it has requested.
    pub(crate) call_id: String,
    /// Whether an approver has approved of the call, its steps' grants in view.
    pub(crate) is_approved: bool,
    pub(crate) time_limit: Duration,
    pub(crate) deadline: Instant,
    /// The slot of the call, in which the steps run.
    pub(crate) slot: CallSlot,
    /// Takes the steps' progress.
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
            turn_deadline: None,
            approval_policy: None,
            approver: None,
            on_update: None,
            on_progress: None,
            on_event: None,
            on_stderr: None,
            slot: None,
            operation_step: None,
            is_named_by_itself: false,
        }
    }

    /// A caller whose agent name the client chose itself, as in a protocol where clients name themselves. The
    /// name is for people who read audit rows and questions. Another caller may bear it too, so everything,
    /// rates included, is kept apart by the run alone. The run must therefore be an id that this process made
    /// and gave to no other caller.
    #[must_use]
    pub fn named_by_itself(name: impl Into<String>, run_id: impl Into<String>) -> Self {
        Self { is_named_by_itself: true, ..Self::new(name, run_id) }
    }

    /// The owner that a call's rate is counted for.
    pub(crate) fn counted_as(&self) -> Owner {
        if self.is_named_by_itself {
            return self.owner();
        }
        Owner { agent: Some(self.agent_id.as_str().into()), run: None }
    }

    /// The owner of things that outlast the call: this run only.
    pub(crate) fn owner(&self) -> Owner {
        let agent = (!self.is_named_by_itself).then(|| self.agent_id.as_str().into());
        Owner { agent, run: Some(self.run_id.as_str().into()) }
    }

    /// The caller for calls that a tool makes: same agent, run, cancellation and deadline. It shares the slot
    /// of the tool's own call, so that a tool that calls tools cannot wait for itself.
    ///
    /// Approver and approval policy stay the same too: a tool is no way around them.
    #[must_use]
    pub fn nested(ctx: &ToolContext) -> Self {
        let parent = ctx.extensions.get::<NestingContext>();
        let base = match parent {
            Some(parent) => {
                parent.has_called.store(true, Ordering::Relaxed);
                parent.caller.clone()
            }
            None => Self::new(ctx.agent_id.clone(), ctx.run_id.clone()),
        };
        Self {
            cancel: ctx.cancel.child_token(),
            turn_deadline: ctx.deadline,
            // A tool passes on reports of its own calls itself.
            on_update: None,
            on_progress: None,
            operation_step: None,
            ..base
        }
    }

    /// Whether a listener wants what a tool reports while it runs.
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

/// The caller and slot of a native tool's call, stored in the tool's context.
#[derive(Debug)]
pub(crate) struct NestingContext {
    pub(crate) caller: Caller,
    /// Whether the tool has made nested calls.
    pub(crate) has_called: Arc<AtomicBool>,
}
