//! The workflow's input, signals, query and outcome, which people and programs exchange with a run.
//!
//! Any client may send inputs, so they are parsed here: an invalid signal is refused and shown in the status.
//! The SDK would fail the workflow task again and again.

use portcullis_runs::{RunError, RunId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use temporalio_common::data_converters::RawValue;
use thiserror::Error;

/// The maximum length of a person's prompt or message: 64 KiB. Temporal stores these texts, so put a longer
/// text into the store.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// The maximum number of messages of a person that wait for the model.
pub(crate) const MAX_WAITING: usize = 64;

/// The encoding of a JSON payload.
const JSON: &[u8] = b"json/plain";

/// The input of the workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunRequest {
    /// A run in the store that has no driver, or whose driver is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
    /// The prompt of a new run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<String>,
    /// Messages of a person that the model has not read. Set when the workflow continues as a new one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) steering: Vec<String>,
    /// Whether a person has cancelled the run. Set like `steering`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cancelled: bool,
}

/// The signal `approve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalSignal {
    /// The id of the question.
    pub(crate) question: String,
    /// Whether the call may run. Default: yes.
    #[serde(default = "yes")]
    pub(crate) approve: bool,
    /// The hash that the question is bound to, for a client that has read the question. Default: the hash in
    /// the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hash: Option<String>,
    /// The reason of a refusal, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The person who answers, as the client names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
}

fn yes() -> bool {
    true
}

/// The answer to the query `status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStatusReport {
    /// The run in the store, or `None` before the first step.
    pub run: Option<String>,
    /// The current step: `setup`, `call_model`, `run_tools`, `finalize` or `ended`.
    pub step: String,
    /// The running call.
    pub call: Option<String>,
    /// The tool of that call.
    pub tool: Option<String>,
    /// The questions that wait for an answer.
    pub questions: Vec<String>,
    /// The number of messages of a person that the model has not read.
    pub waiting_messages: usize,
    /// Whether a person has cancelled the run.
    pub cancelled: bool,
    /// The status of the run in the store, after its last step.
    pub status: Option<String>,
    /// The reason for the last refusal of a signal.
    pub refused_signal: Option<String>,
}

/// The result of the workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// The run. Its answer is in the store: `portcullis runs show`.
    pub run: String,
    /// Its status in the store: `completed`, `failed` or `cancelled`.
    pub status: String,
    /// Messages of a person that came too late for the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// The reason why an input of the workflow, or of a signal, is refused. Its text, with the causes, is for the
/// client that sent it.
#[derive(Debug, Error)]
pub(crate) enum InvalidInput {
    #[error("the input of AgentRun is {{\"run\": ID}} or {{\"prompt\": TEXT}}")]
    Run(#[source] InvalidPayload),
    #[error("the input of AgentRun has either `run` or `prompt`")]
    RunOrPrompt,
    #[error(transparent)]
    RunId(RunError),
    #[error("`approve` needs {{\"question\": ID}}; add \"approve\": false to deny")]
    Approve(#[source] InvalidPayload),
    #[error("steer needs a text")]
    Steer(#[source] InvalidPayload),
    #[error("{subject} is empty")]
    Empty { subject: &'static str },
    #[error("{subject} has {bytes} bytes; Temporal gets at most {MAX_TEXT_BYTES}")]
    TooLong { subject: &'static str, bytes: usize },
}

/// The reason why a payload cannot be read.
#[derive(Debug, Error)]
pub(crate) enum InvalidPayload {
    #[error("there are {0} arguments, not 1")]
    Count(usize),
    #[error("the argument is not JSON")]
    Encoding,
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl RunRequest {
    /// Parses the input.
    pub(crate) fn read(input: &RawValue) -> Result<Self, InvalidInput> {
        let request: Self = read(input).map_err(InvalidInput::Run)?;
        match (&request.run, &request.prompt) {
            (Some(run), None) => run.parse::<RunId>().map(drop).map_err(InvalidInput::RunId)?,
            (None, Some(prompt)) => check_text("the prompt", prompt)?,
            _ => return Err(InvalidInput::RunOrPrompt),
        }
        Ok(request)
    }
}

impl ApprovalSignal {
    /// Parses the signal's input.
    pub(crate) fn read(input: &RawValue) -> Result<Self, InvalidInput> {
        let answer: Self = read(input).map_err(InvalidInput::Approve)?;
        answer.reason.as_deref().map_or(Ok(()), |reason| check_text("the reason of approve", reason))?;
        Ok(answer)
    }
}

/// Parses the input of the signal `steer`: a text.
pub(crate) fn read_message(input: &RawValue) -> Result<String, InvalidInput> {
    let text: String = read(input).map_err(InvalidInput::Steer)?;
    check_text("the message of steer", &text)?;
    Ok(text)
}

fn check_text(subject: &'static str, text: &str) -> Result<(), InvalidInput> {
    match text.len() {
        0 => Err(InvalidInput::Empty { subject }),
        bytes if bytes > MAX_TEXT_BYTES => Err(InvalidInput::TooLong { subject, bytes }),
        _ => Ok(()),
    }
}

/// Parses a single JSON payload.
pub(crate) fn read<T: DeserializeOwned>(input: &RawValue) -> Result<T, InvalidPayload> {
    let [payload] = &*input.payloads else {
        return Err(InvalidPayload::Count(input.payloads.len()));
    };
    if payload.metadata.get("encoding").map(|encoding| &**encoding) != Some(JSON) {
        return Err(InvalidPayload::Encoding);
    }
    Ok(serde_json::from_slice(&payload.data)?)
}

#[cfg(test)]
mod tests {
    use portcullis_types::error_chain;
    use temporalio_common::protos::temporal::api::common::v1::Payload;

    use super::*;

    fn raw(text: &str) -> RawValue {
        let metadata = [("encoding".to_owned(), JSON.to_vec())].into();
        RawValue::new(vec![Payload { metadata, data: text.as_bytes().to_vec(), ..Payload::default() }])
    }

    #[test]
    fn an_input_names_a_run_or_a_prompt() {
        let request = RunRequest::read(&raw(r#"{"prompt":"Do it."}"#)).expect("a prompt");
        assert_eq!(request.prompt.as_deref(), Some("Do it."));
        assert!(RunRequest::read(&raw(r#"{"run":"run_0123456789abcdef"}"#)).is_ok());
        for (text, expected) in [
            ("", "EOF"),
            ("7", "invalid type"),
            ("{}", "either"),
            (r#"{"run":"run_0123456789abcdef","prompt":"x"}"#, "either"),
            (r#"{"run":"x"}"#, "16 hexadecimal digits"),
            (r#"{"prompt":""}"#, "empty"),
            (r#"{"prompts":"x"}"#, "unknown field"),
        ] {
            let error = error_chain(&RunRequest::read(&raw(text)).expect_err(text));
            assert!(error.contains(expected), "{text}: {error}");
        }
        let long = serde_json::to_string(&serde_json::json!({"prompt": "x".repeat(MAX_TEXT_BYTES + 1)}));
        let error = RunRequest::read(&raw(&long.expect("JSON"))).expect_err("long").to_string();
        assert!(error.contains("at most 65536"), "{error}");
    }

    #[test]
    fn a_signal_that_cannot_be_read_says_why() {
        assert_eq!(read_message(&raw("\"now\"")).expect("a text"), "now");
        let refused = |input: &RawValue, label| error_chain(&read_message(input).expect_err(label));
        assert!(refused(&raw("{}"), "no text").contains("steer needs a text"));
        assert!(refused(&RawValue::new(Vec::new()), "none").contains("0 arguments"));
        let binary = RawValue::new(vec![Payload { data: b"\"x\"".to_vec(), ..Payload::default() }]);
        assert!(refused(&binary, "not JSON").contains("not JSON"));
        let answer = ApprovalSignal::read(&raw(r#"{"question":"approval_1"}"#)).expect("an answer");
        assert!(answer.approve && answer.hash.is_none());
        assert!(ApprovalSignal::read(&raw(r#"{"question":"approval_1","approve":"no"}"#)).is_err());
    }
}
