//! [`RunState`]: a run between two of its steps.

use portcullis_types::Message;
use serde::{Deserialize, Serialize};

use super::{AgentEnd, Usage, read_answer::CompleteAnswer, repeat_guard::RepeatGuard, transcript};

/// A run between two of its steps. It can be serialised and deserialised. Together with the stored conversation
/// it is all that another process needs to continue the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    pub(super) next: RunStep,
    /// How many times the model was asked.
    pub(super) turns_total: u32,
    /// How many of these turns were for the current question.
    pub(super) turns_for_question: u32,
    /// Tokens of all answers together.
    pub(super) usage: Usage,
    pub(super) guard: RepeatGuard,
}

/// The next step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum RunStep {
    /// Store the question.
    Setup { question: Message },
    /// Ask the model.
    CallModel,
    /// Run the calls of an answer, and store the answer with their results.
    RunTools { answer: CompleteAnswer },
    /// Store an answer without calls. The run is over then, unless a person has written meanwhile.
    Finalize { answer: CompleteAnswer },
    /// None: the run is over.
    #[serde(rename = "over")]
    Ended { end: AgentEnd },
}

impl RunState {
    /// A run that begins.
    pub(super) fn new(question: Message) -> Self {
        Self {
            next: RunStep::Setup { question },
            turns_total: 0,
            turns_for_question: 0,
            usage: Usage::default(),
            guard: RepeatGuard::default(),
        }
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.next, RunStep::Ended { .. })
    }

    /// The message that an interrupted run was about to store: the question, or the model's answer. The answer's
    /// calls may have begun, so they belong into the conversation: a run that reads it tells the model that their
    /// effects are unknown. None if the stored conversation is complete.
    #[must_use]
    pub fn unstored_message(&self) -> Option<Message> {
        let answer = match &self.next {
            RunStep::Setup { question } => return Some(question.clone()),
            RunStep::RunTools { answer } | RunStep::Finalize { answer } => answer,
            RunStep::CallModel | RunStep::Ended { .. } => return None,
        };
        let calls = answer.calls.iter().map(|call| transcript::sendable(&call.call)).collect();
        let message = Message::assistant(answer.text.clone(), calls);
        (!message.content.is_empty() || !message.tool_calls.is_empty()).then_some(message)
    }

    /// Adds the tokens of one answer.
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

    /// The state of a run whose next step is this one.
    fn state(next: &serde_json::Value) -> RunState {
        let mut state = serde_json::to_value(RunState::new(Message::user("q"))).expect("serialises");
        state["next"] = next.clone();
        serde_json::from_value(state).expect("deserialises")
    }

    #[test]
    fn an_interrupted_run_has_a_message_that_is_not_stored() {
        let new = RunState::new(Message::user("q"));
        assert_eq!(new.unstored_message(), Some(Message::user("q")));
        assert!(!new.is_over());
        let call = json!({"id": "c", "tool": "t", "arguments": "{\"a\":1}"});
        let answer = json!({"text": "x", "calls": [{"call": call, "refused": null}], "stop": "tool_calls", "usage": null});
        let message = state(&json!({"type": "run_tools", "answer": answer})).unstored_message();
        let message = message.expect("the answer");
        assert_eq!((message.text().as_str(), &*message.tool_calls[0].id), ("x", "c"));
        assert_eq!(state(&json!({"type": "call_model"})).unstored_message(), None);
        let over = state(&json!({"type": "over", "end": {"type": "cancelled"}}));
        assert!(over.is_over() && over.unstored_message().is_none());
    }
}
