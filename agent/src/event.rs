//! [`AgentEvent`]: the events of a run, for observers. The event formats of other systems are derived from
//! it.

use std::{fmt, sync::Arc};

use portcullis_types::{Message, ToolEvent, ToolResult};
use serde::{Deserialize, Serialize};

use super::{ProviderErrorKind, StopReason, Usage};

/// One event of a run. Events are for information. The history and the audit log are the source of truth.
///
/// The enum is exhaustive on purpose: a new event does not compile until each event format maps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum AgentEvent {
    /// The run starts.
    AgentStart {
        /// The agent's id.
        agent_id: String,
        /// The run's id.
        run_id: String,
    },
    /// The model is asked.
    TurnStart {
        /// The number of the turn in the run, counted from 1.
        iteration: u32,
    },
    /// A piece of the model's text.
    TextDelta {
        /// The new part of the text.
        delta: String,
    },
    /// A piece of the model's thinking.
    ThinkingDelta {
        /// The new part of the text.
        delta: String,
    },
    /// The model's response is complete. A response with calls enters the history together with the results of
    /// the calls.
    MessageEnd {
        /// The complete response.
        message: Arc<Message>,
    },
    /// An event of a call. [`ToolEvent::Finished`] never occurs here: [`AgentEvent::ToolEnd`] replaces it and
    /// carries the result.
    Tool(ToolEvent),
    /// A call has ended. Exactly one [`ToolEvent::Requested`] precedes it, even if the call never ran.
    ToolEnd {
        /// The call's result.
        result: Arc<ToolResult>,
    },
    /// A person steered the run; calls that had not begun were skipped.
    Steered {
        /// The person's messages.
        messages: Arc<Vec<Message>>,
    },
    /// The turn has ended, including its calls.
    TurnEnd {
        /// The number of the turn, counted from 1.
        iteration: u32,
        /// Why the model's response ended.
        stop: StopReason,
        /// Tokens of the turn, if the provider reports them.
        usage: Option<Usage>,
    },
    /// The run has ended. Always the last event.
    AgentEnd {
        /// How it ended.
        end: AgentEnd,
    },
}

impl AgentEvent {
    /// Returns whether the event opens or ends something. The loop sends such an event once, and no later
    /// event makes up for its loss. A reader may miss other events: the pieces of a response, because the
    /// complete response follows, and reports of a running call.
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

/// How a run ended. Exhaustive for the same reason as [`AgentEvent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEnd {
    /// With the model's final answer.
    Answer {
        /// The answer's text.
        text: String,
    },
    /// The model still asked for calls in the last turn that it was allowed.
    MaxIterations {
        /// The number of turns that the model had.
        limit: u32,
    },
    /// The token limit cut off the final answer.
    Length {
        /// The text up to the cut.
        text: String,
    },
    /// The model repeated the same call too often.
    Repeated {
        /// The tool's name.
        tool: String,
    },
    /// The run was cancelled.
    Cancelled,
    /// The provider gave no complete answer.
    Provider {
        /// The kind of failure.
        kind: ProviderErrorKind,
        /// Message for the operator.
        message: String,
    },
    /// An internal fault, or a fault of one of the embedder's parts.
    Internal {
        /// Message for the operator.
        message: String,
    },
}

impl fmt::Display for AgentEnd {
    /// Writes how the run ended, in a few words for an operator, without the model's text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer { .. } => f.write_str("the model answered"),
            Self::MaxIterations { limit } => write!(f, "no answer after {limit} turns"),
            Self::Length { .. } => f.write_str("the answer was cut off"),
            Self::Repeated { tool } => write!(f, "the same call of `{tool}` over and over"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Provider { message, .. } => write!(f, "the provider failed: {message}"),
            Self::Internal { message } => write!(f, "an internal fault: {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use portcullis_types::{ToolCall, ToolError};

    use super::*;

    #[test]
    fn events_are_written_and_read_again() {
        let call = ToolCall { id: "c".into(), tool: "t".into(), arguments: "{}".into() };
        let result = ToolResult::without_run(call, ToolError::cancelled("given up"));
        for event in [
            AgentEvent::AgentStart { agent_id: "a".into(), run_id: "r".into() },
            AgentEvent::Tool(ToolEvent::Pending { call_id: "c".into(), id: "call_1".into(), expires: 1 }),
            AgentEvent::ToolEnd { result: Arc::new(result) },
            AgentEvent::TurnEnd {
                iteration: 1,
                stop: StopReason::Other("odd".into()),
                usage: Some(Usage { input_tokens: 1, output_tokens: 2 }),
            },
            AgentEvent::AgentEnd { end: AgentEnd::Cancelled },
            AgentEvent::AgentEnd {
                end: AgentEnd::Provider { kind: ProviderErrorKind::Server, message: "m".into() },
            },
        ] {
            let written = serde_json::to_string(&event).expect("encodes");
            assert_eq!(serde_json::from_str::<AgentEvent>(&written).expect("decodes"), event);
        }
    }
}
