//! [`RunState`]: a run between two of its steps.

use portcullis_types::{Message, ToolCall};
use serde::{Deserialize, Serialize};

use super::{AgentEnd, Usage, read_response::CompleteResponse, repeat_guard::RepeatGuard, transcript};

/// A run between two of its steps. The value can be serialized. Together with the stored conversation, it is
/// everything that another process needs to continue the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    pub(super) next: RunStep,
    /// The number of times that the model was asked.
    pub(super) turns_total: u32,
    /// The number of these turns that belong to the current prompt.
    #[serde(rename = "turns_for_question")]
    pub(super) turns_for_prompt: u32,
    /// Tokens of all responses together.
    pub(super) usage: Usage,
    pub(super) guard: RepeatGuard,
}

/// The next step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum RunStep {
    /// Store the prompt.
    Setup {
        #[serde(rename = "question")]
        prompt: Message,
    },
    /// Ask the model.
    CallModel,
    /// Run the calls of a response, and store the response with their results.
    RunTools { answer: CompleteResponse },
    /// Store a response without calls. This ends the run, unless a person has written in the meantime.
    Finalize { answer: CompleteResponse },
    /// The run has ended.
    #[serde(rename = "over")]
    Ended { end: AgentEnd },
}

impl RunState {
    /// Creates a run that begins with this prompt.
    #[must_use]
    pub fn new(prompt: Message) -> Self {
        Self {
            next: RunStep::Setup { prompt },
            turns_total: 0,
            turns_for_prompt: 0,
            usage: Usage::default(),
            guard: RepeatGuard::default(),
        }
    }

    /// Creates the state that asks the model once more, for a run that ended without an answer. The model
    /// gets its full number of turns.
    #[must_use]
    pub fn asking_again() -> Self {
        Self { next: RunStep::CallModel, ..Self::new(Message::user("")) }
    }

    /// Resets the count of turns, for a further prompt.
    #[must_use]
    pub fn with_all_turns(self) -> Self {
        Self { turns_for_prompt: 0, ..self }
    }

    /// Returns how the run ended, or `None` if it has a next step.
    #[must_use]
    pub fn end(&self) -> Option<&AgentEnd> {
        match &self.next {
            RunStep::Ended { end } => Some(end),
            _ => None,
        }
    }

    /// Returns the name of the next step: `setup`, `call_model`, `run_tools` or `finalize`, or `ended` if
    /// there is none.
    #[must_use]
    pub fn next_step(&self) -> &'static str {
        match &self.next {
            RunStep::Setup { .. } => "setup",
            RunStep::CallModel => "call_model",
            RunStep::RunTools { .. } => "run_tools",
            RunStep::Finalize { .. } => "finalize",
            RunStep::Ended { .. } => "ended",
        }
    }

    /// Cancels the run. Returns its final state, and the message that the next step would have stored: the
    /// prompt, or the model's response. The caller must store that message. A later run then reports the
    /// response's calls as unknown, because they may have begun.
    #[must_use]
    pub fn cancelled(self) -> (Self, Option<Message>) {
        let message = match &self.next {
            RunStep::Setup { prompt } => Some(prompt.clone()),
            RunStep::RunTools { answer } | RunStep::Finalize { answer } => {
                let calls = answer.calls.iter().map(|call| transcript::stored_form(&call.call)).collect();
                let message = Message::assistant(answer.text.clone(), calls);
                (!message.content.is_empty() || !message.tool_calls.is_empty()).then_some(message)
            }
            RunStep::CallModel | RunStep::Ended { .. } => None,
        };
        (Self { next: RunStep::Ended { end: AgentEnd::Cancelled }, ..self }, message)
    }

    /// Returns the prompt of a run whose first step has not been taken.
    #[must_use]
    pub fn prompt(&self) -> Option<&Message> {
        match &self.next {
            RunStep::Setup { prompt } => Some(prompt),
            _ => None,
        }
    }

    /// Returns the calls that the next step runs, in the order in which the model asked for them.
    pub fn next_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let calls = match &self.next {
            RunStep::RunTools { answer } => &*answer.calls,
            _ => &[],
        };
        calls.iter().map(|call| &call.call)
    }

    /// Returns the calls of the next step that can run. The loop refuses the others, for example a call whose
    /// arguments were cut off.
    pub fn runnable_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let calls = match &self.next {
            RunStep::RunTools { answer } => &*answer.calls,
            _ => &[],
        };
        calls.iter().filter(|call| call.refused.is_none()).map(|call| &call.call)
    }

    /// Returns the tokens of all responses to the current prompt together, as far as the provider reports them.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Adds the tokens of one response.
    pub(super) fn count(&mut self, usage: Option<Usage>) {
        let Usage { input_tokens, output_tokens } = usage.unwrap_or_default();
        self.usage.input_tokens = self.usage.input_tokens.saturating_add(input_tokens);
        self.usage.output_tokens = self.usage.output_tokens.saturating_add(output_tokens);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Creates the state of a run with this next step.
    fn state(next: &serde_json::Value) -> RunState {
        let mut state = serde_json::to_value(RunState::new(Message::user("q"))).expect("serializes");
        state["next"] = next.clone();
        serde_json::from_value(state).expect("deserializes")
    }

    #[test]
    fn a_state_determines_its_next_step() {
        let new = RunState::new(Message::user("q"));
        assert_eq!((new.next_step(), new.prompt(), new.end()), ("setup", Some(&Message::user("q")), None));
        let call = json!({"id": "c", "tool": "t", "arguments": "{\"a\":1}"});
        let answer = json!({"text": "x", "calls": [{"call": call, "refused": null}], "stop": "tool_calls", "usage": null});
        let tools = state(&json!({"type": "run_tools", "answer": answer}));
        let ids: Vec<&str> = tools.next_calls().map(|call| &*call.id).collect();
        assert_eq!((tools.next_step(), ids), ("run_tools", vec!["c"]));
        assert_eq!(tools.runnable_calls().count(), 1);
        let (cancelled, message) = tools.cancelled();
        let message = message.expect("the answer");
        assert_eq!((message.text().as_str(), &*message.tool_calls[0].id), ("x", "c"));
        assert_eq!(cancelled.end(), Some(&AgentEnd::Cancelled));
        assert_eq!(new.clone().cancelled().1, Some(Message::user("q")));
        let over = state(&json!({"type": "over", "end": {"type": "cancelled"}}));
        assert_eq!((over.next_step(), over.end()), ("ended", Some(&AgentEnd::Cancelled)));
        assert_eq!(over.next_calls().count(), 0);
        assert_eq!(over.cancelled().1, None);
        assert_eq!(RunState::asking_again().next_step(), "call_model");
    }
}
