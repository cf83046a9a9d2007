//! [`AgentEvent`]: what happens in a run, for whoever watches. Other systems' forms derive from it.

use std::sync::Arc;

use portcullis_types::{Message, ToolEvent, ToolResult};

use super::{ProviderErrorKind, StopReason, Usage};

/// One event of a run. Events inform; history and audit log, not they, are the record.
///
/// Exhaustive, so that a new event does not compile until each event format says what it is there.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// The run starts.
    AgentStart {
        /// The agent.
        agent_id: String,
        /// The run.
        run_id: String,
    },
    /// The model is asked.
    TurnStart {
        /// Which turn of the run, counted from 1.
        iteration: u32,
    },
    /// The model says more.
    TextDelta {
        /// The text.
        delta: String,
    },
    /// The model thinks on.
    ThinkingDelta {
        /// The text.
        delta: String,
    },
    /// The model's answer is whole. With calls it comes into the history together with their results.
    MessageEnd {
        /// The answer.
        message: Arc<Message>,
    },
    /// Something happens to a call. [`ToolEvent::Finished`] is never among them: [`AgentEvent::ToolEnd`] is
    /// that, with the result.
    Tool(ToolEvent),
    /// A call is over. Each call has exactly one [`ToolEvent::Requested`] before it, also one that never ran.
    ToolEnd {
        /// What came of it.
        result: Arc<ToolResult>,
    },
    /// The person has said something in between; calls that had not begun were skipped.
    Steered {
        /// What was said.
        messages: Arc<Vec<Message>>,
    },
    /// The turn is over, its calls too.
    TurnEnd {
        /// Which turn, counted from 1.
        iteration: u32,
        /// Why the model's answer ended.
        stop: StopReason,
        /// What it cost, where the provider says so.
        usage: Option<Usage>,
    },
    /// The run is over. Always the last event.
    AgentEnd {
        /// How.
        end: AgentEnd,
    },
}

impl AgentEvent {
    /// Whether it opens or ends something: the loop says it once, and nothing that comes later makes up for it.
    /// Of all others a reader may miss some: pieces of an answer that comes whole as well, and what a call tells
    /// while it runs.
    #[must_use]
    pub fn must_arrive(&self) -> bool {
        match self {
            Self::AgentStart { .. }
            | Self::TurnStart { .. }
            | Self::MessageEnd { .. }
            | Self::Tool(ToolEvent::Requested { .. })
            | Self::ToolEnd { .. }
            | Self::Steered { .. }
            | Self::TurnEnd { .. }
            | Self::AgentEnd { .. } => true,
            Self::TextDelta { .. } | Self::ThinkingDelta { .. } | Self::Tool(_) => false,
        }
    }
}

/// How a run ended, as an event tells it. Exhaustive for the reason that [`AgentEvent`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEnd {
    /// With the model's final answer.
    Answer {
        /// Its text.
        text: String,
    },
    /// The model went on asking for calls.
    MaxIterations {
        /// How many turns it had.
        limit: u32,
    },
    /// The limit of tokens cut the final answer off.
    Length {
        /// What there is of it.
        text: String,
    },
    /// The model made the same call over and over.
    Repeated {
        /// The tool.
        tool: String,
    },
    /// The run was cancelled.
    Cancelled,
    /// The provider gave no whole answer.
    Provider {
        /// What kind of failure it was.
        kind: ProviderErrorKind,
        /// In words for the operator.
        message: String,
    },
    /// A fault on our side.
    Internal {
        /// In words for the operator.
        message: String,
    },
}
