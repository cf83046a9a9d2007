//! Who makes a call, and on what terms.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use portcullis_types::{
    CancellationToken, EventFn, ProgressFn, ToolCall, ToolContext, ToolEvent, ToolUpdateFn,
};

use crate::{
    approval::{ApprovalPolicy, Approver},
    sandbox::TransferEnd,
    slots::CallSlot,
};

/// A call under a fresh random id.
#[must_use]
pub fn new_call(tool: impl Into<String>, arguments: impl Into<String>) -> ToolCall {
    ToolCall { id: random_id("call"), tool: tool.into(), arguments: arguments.into() }
}

/// An id that nobody guesses: a prefix and 128 random bits.
pub(crate) fn random_id(prefix: &str) -> String {
    let bits: u128 = rand::random();
    format!("{prefix}_{bits:032x}")
}

/// Takes what a guest wrote to its standard error. Called at most once for each try of a call, on the caller's
/// side, before the result is there.
pub type StderrFn = Arc<dyn Fn(&str) + Send + Sync>;

/// Who makes a call, and on what terms.
///
/// [`Caller::new`] lists the defaults: nobody to ask, so what needs an approval is denied; no listeners; no
/// deadline but the call's own.
#[derive(Clone)]
#[non_exhaustive]
pub struct Caller {
    /// The agent; rate limits, stored outputs and shell sessions are kept apart by it, unless it is
    /// [a name that its bearer chose](Caller::named_by_itself).
    pub agent_id: String,
    /// The run; stored outputs and shell sessions are kept apart by it.
    pub run_id: String,
    /// The agent's space, if it has one.
    pub space_id: Option<String>,
    /// What joins the calls of one operation.
    pub operation_id: Option<String>,
    /// Fires when the caller gives up.
    pub cancel: CancellationToken,
    /// When the caller's turn ends; no call goes on after it, but hooks have a second more for its result.
    pub turn_deadline: Option<Instant>,
    /// What the caller wants asked or denied beyond the policy file. Default: nothing.
    pub approval_policy: Option<Arc<dyn ApprovalPolicy>>,
    /// Who is asked. Default: nobody, which means deny.
    pub approver: Option<Arc<dyn Approver>>,
    /// Takes partial results.
    pub on_update: Option<ToolUpdateFn>,
    /// Takes progress texts.
    pub on_progress: Option<ProgressFn>,
    /// Takes events.
    pub on_event: Option<EventFn>,
    /// Takes what a guest wrote to its standard error, bounded, once it has ended: the message of a panic, the
    /// cause of an `internal`. For a tool's author: it is a stranger's text and may name what no model should
    /// read, so it belongs on the author's terminal, escaped, and in no result.
    pub on_stderr: Option<StderrFn>,
    /// The slot of the call that this one is made from.
    pub(crate) slot: Option<CallSlot>,
    /// Set where the call is a step of an operation.
    pub(crate) step: Option<Step>,
    /// Whether the agent's name is its bearer's own word.
    pub(crate) is_named_by_itself: bool,
}

/// Whose a rate or a shell session is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    /// None where the name proves nothing.
    pub(crate) agent: Option<Arc<str>>,
    /// None where it is the same for all runs of the agent.
    pub(crate) run: Option<Arc<str>>,
}

/// What sets a step of an operation apart from any other call. The operation was counted and, where that was
/// needed, approved, with what its steps may touch in plain view; so a step is not asked about or counted again.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Which end of a transfer the step is, if it is one.
    pub(crate) transfer: Option<TransferEnd>,
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
            step: None,
            is_named_by_itself: false,
        }
    }

    /// A caller with the defaults whose agent's name is its bearer's own word, such as a client's of a protocol in
    /// which clients name themselves. The name is for people who read rows and questions. Another caller may bear
    /// it too, so all that is kept apart is kept apart by the run alone, rates included; the run must therefore be
    /// an id that this process made, and that no other caller is given.
    #[must_use]
    pub fn named_by_itself(name: impl Into<String>, run_id: impl Into<String>) -> Self {
        Self { is_named_by_itself: true, ..Self::new(name, run_id) }
    }

    /// Whose allowance a call is counted against.
    pub(crate) fn counted_as(&self) -> Owner {
        if self.is_named_by_itself {
            return self.owner();
        }
        Owner { agent: Some(self.agent_id.as_str().into()), run: None }
    }

    /// Whose what lasts beyond the call is: of this run, and of no other.
    pub(crate) fn owner(&self) -> Owner {
        let agent = (!self.is_named_by_itself).then(|| self.agent_id.as_str().into());
        Owner { agent, run: Some(self.run_id.as_str().into()) }
    }

    /// The caller for calls that a tool makes: same agent, run, cancellation and deadline, in the slot of
    /// the tool's own call, so that a tool that calls tools cannot wait for itself.
    ///
    /// Whoever is asked, and what the caller wants asked or denied, stays the same too: a tool is no way round
    /// them.
    #[must_use]
    pub fn nested(ctx: &ToolContext) -> Self {
        let parent = ctx.extensions.get::<Parent>();
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
            // What a tool's own calls report is the tool's to pass on.
            on_update: None,
            on_progress: None,
            step: None,
            ..base
        }
    }

    /// Whether anybody wants what a tool reports while it runs.
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

/// The caller of a native tool's call, in the tool's context, with the slot that the call has.
#[derive(Debug)]
pub(crate) struct Parent {
    pub(crate) caller: Caller,
    /// Whether the tool has made calls of its own.
    pub(crate) has_called: Arc<AtomicBool>,
}
