//! [`ConversationRecord`]: the content of a conversation's file.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use portcullis_agent::{RunState, Usage};
use portcullis_tools::policy::{FlowLabel, InvalidFlowLabel};
use portcullis_types::Message;
use serde::{Deserialize, Serialize};

use super::{ConversationError, ConversationId};

/// The format of the files that this program writes, and the newest one that it reads.
pub(super) const VERSION: u32 = 1;

/// A conversation: the messages, and all else that another process needs to continue its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConversationRecord {
    version: u32,
    /// The id of the conversation and of its run.
    pub(crate) id: ConversationId,
    /// The workspace or the project's folder that the conversation is about.
    pub(crate) workspace: String,
    /// When the conversation began, in milliseconds since 1970.
    began_ms: u64,
    /// The messages, without the operator's instructions.
    pub(crate) messages: Vec<Message>,
    /// The state of the newest question's run. None before the first step.
    pub(crate) state: Option<RunState>,
    /// The labels of the run, as in the rows of the audit log, each with the id of the call that brought it.
    labels: BTreeMap<String, String>,
    /// Tokens of all answers together, as far as the provider reports them.
    pub(crate) usage: Usage,
    /// The time of all questions together, from the question to the answer, in milliseconds.
    elapsed_ms: u64,
}

/// The part of a file that every version has.
#[derive(Debug, Deserialize)]
struct AnyVersion {
    version: u32,
}

impl ConversationRecord {
    /// A conversation that begins.
    pub(crate) fn new(id: ConversationId, workspace: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            version: VERSION,
            id,
            workspace: workspace.to_owned(),
            began_ms: milliseconds(now),
            messages: Vec::new(),
            state: None,
            labels: BTreeMap::new(),
            usage: Usage::default(),
            elapsed_ms: 0,
        }
    }

    /// Reads the content of the file at `path`, whose name must be that of the conversation.
    ///
    /// # Errors
    /// [`ConversationError::Newer`], [`ConversationError::Malformed`], [`ConversationError::Misnamed`] or
    /// [`ConversationError::Label`].
    pub(super) fn parse(bytes: &[u8], id: &ConversationId, path: &Path) -> Result<Self, ConversationError> {
        let malformed = |source| ConversationError::Malformed { path: path.to_owned(), source };
        let AnyVersion { version } = serde_json::from_slice(bytes).map_err(malformed)?;
        if version > VERSION {
            return Err(ConversationError::Newer { path: path.to_owned(), found: version, known: VERSION });
        }
        let record: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        if record.id != *id {
            return Err(ConversationError::Misnamed { path: path.to_owned(), id: record.id });
        }
        record.labels().map_err(|source| ConversationError::Label { path: path.to_owned(), source })?;
        Ok(record)
    }

    /// The labels of the run.
    ///
    /// # Errors
    /// [`InvalidFlowLabel`] if a text is no label. A record that was read from a file has none.
    pub(super) fn labels(&self) -> Result<BTreeMap<FlowLabel, String>, InvalidFlowLabel> {
        let labels = self.labels.iter().map(|(label, call)| Ok((label.parse()?, call.clone())));
        labels.collect()
    }

    /// Replaces the labels of the run.
    pub(super) fn set_labels(&mut self, labels: &BTreeMap<FlowLabel, String>) {
        self.labels = labels.iter().map(|(label, call)| (label.to_string(), call.clone())).collect();
    }

    /// The time of all questions together.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms)
    }

    /// Adds the tokens and the time of one question.
    pub(super) fn count(&mut self, usage: Usage, elapsed: Duration) {
        self.usage.input_tokens = self.usage.input_tokens.saturating_add(usage.input_tokens);
        self.usage.output_tokens = self.usage.output_tokens.saturating_add(usage.output_tokens);
        self.elapsed_ms = self.elapsed_ms.saturating_add(milliseconds(elapsed));
    }

    /// Adds the message that an interrupted run was about to store. Returns whether the run was interrupted.
    pub(super) fn mend(&mut self) -> bool {
        let Some(state) = self.state.take().filter(|state| !state.is_over()) else { return false };
        self.messages.extend(state.unstored_message());
        true
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record() -> ConversationRecord {
        let mut record = ConversationRecord::new("run_0123456789abcdef".parse().expect("an id"), "/work");
        record.messages.push(Message::user("hi"));
        record.set_labels(&BTreeMap::from([(FlowLabel::Vault, "c1".to_owned())]));
        record.count(Usage { input_tokens: 3, output_tokens: 4 }, Duration::from_secs(2));
        record
    }

    fn parse(value: &Value) -> Result<ConversationRecord, ConversationError> {
        let id = "run_0123456789abcdef".parse().expect("an id");
        ConversationRecord::parse(value.to_string().as_bytes(), &id, Path::new("/state/x.json"))
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = record();
        let read = parse(&serde_json::to_value(&record).expect("serialises")).expect("reads");
        assert_eq!(read, record);
        assert_eq!(read.labels().expect("labels"), BTreeMap::from([(FlowLabel::Vault, "c1".to_owned())]));
        assert_eq!(read.elapsed(), Duration::from_secs(2));
    }

    #[test]
    fn a_file_that_is_no_record_is_refused_with_its_fault() {
        let value = serde_json::to_value(record()).expect("serialises");
        let with = |key: &str, new: Value| {
            let mut value = value.clone();
            value[key] = new;
            parse(&value).expect_err(key)
        };
        assert!(matches!(with("version", json!(2)), ConversationError::Newer { found: 2, known: 1, .. }));
        assert!(matches!(with("messages", json!("x")), ConversationError::Malformed { .. }));
        assert!(matches!(with("further", json!(1)), ConversationError::Malformed { .. }));
        assert!(matches!(with("id", json!("../x")), ConversationError::Malformed { .. }));
        let other = with("id", json!("run_fedcba9876543210"));
        assert!(matches!(other, ConversationError::Misnamed { .. }));
        assert!(matches!(with("labels", json!({"vaults": "c"})), ConversationError::Label { .. }));
        assert!(matches!(parse(&json!([])), Err(ConversationError::Malformed { .. })));
    }

    #[test]
    fn an_interrupted_run_leaves_its_message_in_the_conversation() {
        let mut record = record();
        assert!(!record.mend(), "no run");
        let state = json!({
            "next": {"type": "setup", "question": Message::user("and?")},
            "turns_total": 0, "turns_for_question": 0,
            "usage": {"input_tokens": 0, "output_tokens": 0},
            "guard": {"last": null, "count": 0},
        });
        record.state = Some(serde_json::from_value(state).expect("a state"));
        assert!(record.mend());
        assert_eq!(record.messages, [Message::user("hi"), Message::user("and?")]);
        assert!(!record.mend(), "only once");
    }
}
