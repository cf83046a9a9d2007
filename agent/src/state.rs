//! [`RunState`]: a run between two of its steps.

use portcullis_types::Message;
use serde::{Deserialize, Serialize};

use super::{AgentEnd, Usage, read_answer::CompleteAnswer, repeat_guard::RepeatGuard};

/// A run between two of its steps. It serialises both ways, and together with the stored conversation it is
/// all that another process needs to go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RunState {
    pub(super) next: RunStep,
    /// How many times the model was asked.
    pub(super) turns_total: u32,
    /// How many of these were for the question that the model works on.
    pub(super) turns_for_question: u32,
    /// Tokens of all answers together.
    pub(super) usage: Usage,
    pub(super) guard: RepeatGuard,
}

/// The next step of a run (specification 000, "SetupStep" to "FinalizeStep").
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
    Over { end: AgentEnd },
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

    /// Adds the tokens of one answer.
    pub(super) fn count(&mut self, usage: Option<Usage>) {
        let Usage { input_tokens, output_tokens } = usage.unwrap_or_default();
        self.usage.input_tokens = self.usage.input_tokens.saturating_add(input_tokens);
        self.usage.output_tokens = self.usage.output_tokens.saturating_add(output_tokens);
    }
}
