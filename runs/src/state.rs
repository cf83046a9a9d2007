//! [`StoredState`]: the state of a run as it is stored, with the labels of the run.

use std::{collections::BTreeMap, time::Duration};

use portcullis_agent::{RunState, Usage};
use portcullis_store::{Json, StoreError};
use portcullis_tools::policy::FlowLabel;
use serde::{Deserialize, Serialize};

use crate::{RunError, RunId, clock::milliseconds};

/// The format of the states that this program writes. It is also the newest format that it reads.
const VERSION: u32 = 1;

/// The state of a run as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredState {
    version: u32,
    /// The loop's state, which names the next step.
    pub run: RunState,
    /// The labels of what the run has read, each with the id of the call that brought it.
    labels: BTreeMap<String, String>,
    /// Tokens and time of the earlier prompts.
    pub totals: RunTotals,
}

/// Tokens and time of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunTotals {
    /// Tokens of all answers together, as far as the provider reports them.
    pub usage: Usage,
    /// The time spent on prompts, in milliseconds, without the time between processes.
    elapsed_ms: i64,
}

/// The part that the state has in every version.
#[derive(Debug, Deserialize)]
struct AnyVersion {
    version: u32,
}

impl RunTotals {
    /// Returns the time spent on prompts.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms.unsigned_abs())
    }

    /// Returns the totals after one more prompt.
    #[must_use]
    pub fn with_prompt(self, usage: Usage, elapsed: Duration) -> Self {
        let Usage { input_tokens, output_tokens } = self.usage;
        let usage = Usage {
            input_tokens: input_tokens.saturating_add(usage.input_tokens),
            output_tokens: output_tokens.saturating_add(usage.output_tokens),
        };
        Self { usage, elapsed_ms: self.elapsed_ms.saturating_add(milliseconds(elapsed)) }
    }
}

impl StoredState {
    pub(crate) fn new(run: RunState, labels: &BTreeMap<FlowLabel, String>, totals: RunTotals) -> Self {
        let labels = labels.iter().map(|(label, call)| (label.to_string(), call.clone())).collect();
        Self { version: VERSION, run, labels, totals }
    }

    /// Returns the same labels and totals with another state of the loop.
    pub(crate) fn with_run(self, run: RunState) -> Self {
        Self { run, ..self }
    }

    /// Parses a state of the store.
    ///
    /// # Errors
    /// [`RunError::NewerFormat`], [`RunError::Malformed`].
    pub fn parse(text: &str, id: &RunId) -> Result<Self, RunError> {
        let malformed = |source| RunError::Malformed { id: id.clone(), kind: "state", source };
        // Read the version first, because a newer state can have keys that this program refuses.
        let AnyVersion { version } = serde_json::from_str(text).map_err(malformed)?;
        if version > VERSION {
            return Err(RunError::NewerFormat { id: id.clone(), found: version, known: VERSION });
        }
        serde_json::from_str(text).map_err(malformed)
    }

    pub(crate) fn to_json(&self) -> Result<Json, StoreError> {
        Json::of(self)
    }

    /// Returns the labels of the run, each with the id of the call that brought it.
    pub(crate) fn labels(&self, id: &RunId) -> Result<Vec<(FlowLabel, String)>, RunError> {
        self.labels.iter().map(|(label, call)| Ok((parse_label(label, id)?, call.clone()))).collect()
    }
}

/// Parses a label of the store.
pub(crate) fn parse_label(text: &str, id: &RunId) -> Result<FlowLabel, RunError> {
    text.parse().map_err(|source| RunError::UnknownLabel { id: id.clone(), source })
}

#[cfg(test)]
mod tests {
    use portcullis_types::Message;
    use serde_json::{Value, json};

    use super::*;

    fn id() -> RunId {
        "run_0123456789abcdef".parse().expect("an id")
    }

    fn state() -> StoredState {
        let labels = BTreeMap::from([(FlowLabel::Vault, "c1".to_owned())]);
        let usage = Usage { input_tokens: 3, output_tokens: 4 };
        let totals = RunTotals::default().with_prompt(usage, Duration::from_secs(2));
        StoredState::new(RunState::new(Message::user("hi")), &labels, totals)
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let state = state();
        let text = state.to_json().expect("serializes").into_text();
        let read = StoredState::parse(&text, &id()).expect("reads");
        assert_eq!(read, state);
        assert_eq!(read.labels(&id()).expect("labels"), [(FlowLabel::Vault, "c1".to_owned())]);
        assert_eq!(read.totals.elapsed(), Duration::from_secs(2));
    }

    #[test]
    fn a_text_that_is_not_a_state_is_refused_with_its_fault() {
        let value: Value = serde_json::to_value(state()).expect("serializes");
        let with = |key: &str, new: Value| {
            let mut value = value.clone();
            value[key] = new;
            StoredState::parse(&value.to_string(), &id())
        };
        assert!(matches!(with("version", json!(2)), Err(RunError::NewerFormat { found: 2, known: 1, .. })));
        assert!(matches!(with("run", json!("x")), Err(RunError::Malformed { .. })));
        assert!(matches!(with("further", json!(1)), Err(RunError::Malformed { .. })));
        let state = with("labels", json!({"vaults": "c"})).expect("reads");
        assert!(matches!(state.labels(&id()), Err(RunError::UnknownLabel { .. })));
        assert!(matches!(StoredState::parse("[]", &id()), Err(RunError::Malformed { .. })));
    }
}
