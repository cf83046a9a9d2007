//! The fields of a row about a call. [`write`] turns them into a line.

use std::{fmt, sync::Arc, time::Duration};

use portcullis_types::{Access, SafetyTier, ToolErrorKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    approver::RecordedApprover, connection::RecordedConnection, request::RecordedRequest,
    touched::TouchedMount,
};

pub(super) mod write;

/// A text that rows share. Cheap to clone; create it with `.into()`.
pub type SharedText = Arc<str>;

/// The description of a call. The `begin` and `end` of one call have equal descriptions, except for fields
/// that become known while the call runs. Only the call's id and the tool's name are always known; for
/// example, a call of an unknown tool has no tier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowFields {
    /// The call's id.
    pub call_id: SharedText,
    /// The run that the call belongs to.
    pub run_id: Option<SharedText>,
    /// The agent that makes the call.
    pub agent: Option<SharedText>,
    /// An id that the calls of one operation share, such as the two steps of `vault_copyto`.
    pub operation_id: Option<SharedText>,
    /// The tool's canonical name. For an unknown tool, the name that the caller wrote.
    pub tool: SharedText,
    /// The tool's tier.
    pub tier: Option<SafetyTier>,
    /// The confinement of the tool.
    pub confinement: Option<Confinement>,
    /// The profile that the call runs with.
    pub profile: Option<SharedText>,
    /// The mounts that the call was granted.
    pub mounts: Vec<RecordedMount>,
    /// The subjects of the call's arguments. They never contain file contents.
    pub subjects: Vec<Subject>,
    /// SHA-256 of the arguments' text that was judged last, in hexadecimal. In an `approve` or `revoke`:
    /// SHA-256 of the tool's declarations.
    pub args_sha256: Option<SharedText>,
    /// Digest of the effective policy.
    pub policy_digest: Option<SharedText>,
    /// SHA-256 of the module.
    pub module_sha256: Option<SharedText>,
    /// The policy's decision.
    pub decision: Option<Decision>,
    /// The stable code of a denial or an error. [`CallEnd::code`] takes precedence.
    pub code: Option<SharedText>,
    /// The deciding rule.
    pub rule: Option<SharedText>,
    /// The result of the approval: `not_required`, `approved`, `refused`, ….
    pub approval: Option<SharedText>,
    /// The approver that approved or refused the call. `None` if no approval was needed, or no one answered.
    pub approver: Option<RecordedApprover>,
    /// The labels of the run when the call was judged. They show what the run's earlier calls have read.
    pub labels: Vec<SharedText>,
    /// The flow rule that required an approval of the call, or denied it.
    pub flow_rule: Option<SharedText>,
    /// The names of the secrets that the host attached to the call's requests, never their values. In a
    /// `begin`, the secrets for the URLs in the call's arguments.
    pub secrets: Vec<SharedText>,
    /// The requests that the host's HTTP client made for the call, the last one first: it has the final URL,
    /// which must be in the row even if earlier requests do not fit.
    pub requests: Vec<RecordedRequest>,
    /// The confinement layers of the call, named as in `doctor`.
    pub posture: Option<SharedText>,
}

/// One row to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRow {
    /// The fields about its subject: a call, a request to a model, or a pin.
    pub fields: Arc<RowFields>,
    /// The recorded event.
    pub event: NewRowEvent,
}

impl NewRow {
    /// The row before a call with effects runs.
    #[must_use]
    pub fn begin(fields: &Arc<RowFields>) -> Self {
        Self { fields: Arc::clone(fields), event: NewRowEvent::Begin }
    }

    /// The row after a call, or the only row of a call without effects or of a refused call.
    #[must_use]
    pub fn end(fields: &Arc<RowFields>, end: CallEnd) -> Self {
        Self { fields: Arc::clone(fields), event: NewRowEvent::End(end) }
    }

    /// The row after a request to a model. Only the run and the agent are written.
    #[must_use]
    pub fn model(fields: &Arc<RowFields>, end: ModelEnd) -> Self {
        Self { fields: Arc::clone(fields), event: NewRowEvent::Model(end) }
    }

    /// The row for the late result of a pending call, written when the result enters the run.
    #[must_use]
    pub fn result(fields: &Arc<RowFields>, end: CallEnd) -> Self {
        Self { fields: Arc::clone(fields), event: NewRowEvent::Result(end) }
    }

    /// The row before a tool of a module is pinned.
    #[must_use]
    pub fn approve(fields: &Arc<RowFields>) -> Self {
        Self { fields: Arc::clone(fields), event: NewRowEvent::Approve }
    }

    /// The row before a pin is withdrawn.
    #[must_use]
    pub fn revoke(fields: &Arc<RowFields>) -> Self {
        Self { fields: Arc::clone(fields), event: NewRowEvent::Revoke }
    }
}

/// The event that a new row records: the phase of a call, the end of a request to a model, or
/// the change of a pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewRowEvent {
    /// The call is about to run.
    Begin,
    /// The call has ended.
    End(CallEnd),
    /// The call was pending, and its result is entering the run.
    Result(CallEnd),
    /// A model has answered a request, or has failed. Not about a call.
    Model(ModelEnd),
    /// A tool of a module is about to be pinned. Not about a call.
    Approve,
    /// A pin is about to be withdrawn. Not about a call.
    Revoke,
}

/// The end of a request to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEnd {
    /// The model's name, as the provider knows it.
    pub model: SharedText,
    /// The URL of the provider, without its path. `None` if nothing was sent.
    pub address: Option<SharedText>,
    /// Success, or the kind of the error.
    pub outcome: Outcome,
    /// The provider's kind of failure, or its stop reason.
    pub code: Option<SharedText>,
    /// The time from the request to the end of the response.
    pub duration: Duration,
    /// The tokens of the request, if the provider reports them.
    pub input_tokens: Option<u64>,
    /// The tokens of the response, if the provider reports them.
    pub output_tokens: Option<u64>,
}

/// The result of a call, with measurements. [`CallEnd::new`] sets no measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnd {
    /// Success, or the kind of the error.
    pub outcome: Outcome,
    /// The error's code, if it is more precise than [`RowFields::code`].
    pub code: Option<SharedText>,
    /// The time from the call's arrival to its result, without the waits for an approver.
    pub duration: Option<Duration>,
    /// The processor time of the call.
    pub cpu: Option<Duration>,
    /// The peak memory of the guest, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// The size of the result before truncation, in bytes.
    pub output_bytes: Option<u64>,
    /// Whether the result was truncated.
    pub truncated: Option<bool>,
    /// The names of the mounts that the call accessed.
    pub mounts_used: Vec<SharedText>,
    /// The call's accesses to each mount. `None` if they were not observed: the kernel does not report what a
    /// command accesses, and a native tool is host code.
    pub touched: Option<Vec<TouchedMount>>,
    /// The first guest paths that the call opened or changed, other than the subjects of its arguments.
    pub touched_paths: Vec<SharedText>,
    /// The connections of a command and of the jobs of its session. Equal connections are counted together.
    pub connections: Vec<RecordedConnection>,
    /// The number of connections beyond the limit of the list.
    pub connections_omitted: u64,
}

impl CallEnd {
    /// Creates an end with only an outcome.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            code: None,
            duration: None,
            cpu: None,
            peak_memory_bytes: None,
            output_bytes: None,
            truncated: None,
            mounts_used: Vec::new(),
            touched: None,
            touched_paths: Vec::new(),
            connections: Vec::new(),
            connections_omitted: 0,
        }
    }
}

/// The outcome of a call, which is one word in the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The call ended with a result.
    Ok,
    /// Unknown, because the call's process died. Only recovery writes this outcome.
    Unknown,
    /// The result is submitted later, from outside. A [`RowEvent::Result`] row follows when it enters the run.
    Pending,
    /// The call ended with an error of this kind.
    Error(ToolErrorKind),
}

impl Outcome {
    /// The word in the row: `ok`, `unknown`, `pending`, or the error kind's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Pending => "pending",
            Self::Error(kind) => kind.as_str(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let kinds = ToolErrorKind::ALL.into_iter().map(Self::Error);
        [Self::Ok, Self::Unknown, Self::Pending]
            .into_iter()
            .chain(kinds)
            .find(|outcome| outcome.as_str() == word)
            .ok_or_else(|| de::Error::custom(format_args!("unknown outcome `{word}`")))
    }
}

portcullis_types::word_enum! {
    /// The event that a row records.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum RowEvent as "event" {
        /// Written before the call runs.
        Begin = "begin",
        /// Written after the call, or instead of its run.
        End = "end",
        /// The late result of a pending call, written when the result enters the run.
        Result = "result",
        /// A model has answered a request, or has failed. Not about a call.
        Model = "model",
        /// A tool of a module is about to be pinned. Not about a call.
        Approve = "approve",
        /// A pin is about to be withdrawn. Not about a call.
        Revoke = "revoke",
        /// The first row of a process that opened the log. Not about a call.
        Start = "start",
        /// The policy changed, or a policy was refused. Not about a call.
        Policy = "policy",
        /// The tree of all rows before it, not about a call. Every segment except the first starts with one.
        Checkpoint = "checkpoint",
        /// The last row of a process, not about a call. A process that was killed has none.
        Stop = "stop",
        /// A kind that a later version writes. This version never writes it.
        Other = "other",
    }
}

impl RowEvent {
    /// Whether the row is about a process or the log: a start, a stop, a policy, a checkpoint.
    #[must_use]
    pub const fn concerns_process(self) -> bool {
        matches!(self, Self::Start | Self::Policy | Self::Checkpoint | Self::Stop)
    }
}

portcullis_types::word_enum! {
    /// The confinement of a tool.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Confinement {
        /// The WASM sandbox, with the kernel's layers around it.
        Wasm = "wasm",
        /// The threads of the host's HTTP client, which can reach only the granted ports.
        Egress = "egress",
        /// The sessions of a shell sidecar. The row's posture lists the layers.
        Shell = "shell",
        /// None here: a person or another program submits the result.
        External = "external",
        /// None: nothing runs, and the tool returns its arguments.
        Internal = "internal",
        /// No confinement: the tool is host code.
        Native = "native, unconfined",
    }
}

portcullis_types::word_enum! {
    /// The policy's decision.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Decision as "decision" {
        /// The call may run.
        Allow = "allow",
        /// The call may not run.
        Deny = "deny",
    }
}

/// A mount that a call was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMount {
    /// The mount's name.
    pub name: SharedText,
    /// Read or write access.
    pub access: Access,
}

/// The subject of one argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The argument, or the reason why the host has added the subject.
    #[serde(rename = "argument")]
    pub source: SubjectSource,
    /// The kind of subject.
    pub kind: SubjectKind,
    /// The path, URL or command itself.
    pub value: SharedText,
}

/// The source of a [`Subject`]. Rows have it as one word, so an argument that is named like another source is
/// read as that source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SharedText", into = "SharedText")]
pub enum SubjectSource {
    /// The argument with this name. The policy judged it.
    Argument(SharedText),
    /// A command created this protected path. The host adds it to the row after the command has run.
    ProtectedPathMade,
    /// The search for such paths was incomplete.
    ProtectedPathsUnseen,
}

impl SubjectSource {
    /// The word in rows.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Argument(name) => name,
            Self::ProtectedPathMade => PROTECTED_PATH_MADE,
            Self::ProtectedPathsUnseen => PROTECTED_PATHS_UNSEEN,
        }
    }

    /// Whether the subject comes from an argument of the call, so that the policy judged it.
    #[must_use]
    pub fn is_argument(&self) -> bool {
        matches!(self, Self::Argument(_))
    }
}

impl fmt::Display for SubjectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<SharedText> for SubjectSource {
    fn from(word: SharedText) -> Self {
        match &*word {
            PROTECTED_PATH_MADE => Self::ProtectedPathMade,
            PROTECTED_PATHS_UNSEEN => Self::ProtectedPathsUnseen,
            _ => Self::Argument(word),
        }
    }
}

impl From<&str> for SubjectSource {
    fn from(word: &str) -> Self {
        SharedText::from(word).into()
    }
}

impl From<SubjectSource> for SharedText {
    fn from(source: SubjectSource) -> Self {
        match source {
            SubjectSource::Argument(name) => name,
            other => other.as_str().into(),
        }
    }
}

/// The word of [`SubjectSource::ProtectedPathMade`].
const PROTECTED_PATH_MADE: &str = "protected_path_made";

/// The word of [`SubjectSource::ProtectedPathsUnseen`].
const PROTECTED_PATHS_UNSEEN: &str = "protected_paths_unseen";

portcullis_types::word_enum! {
    /// The kind of a subject.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum SubjectKind {
        /// A guest path.
        Path = "path",
        /// A URL that the call requests.
        Url = "url",
        /// A shell command.
        Command = "command",
    }
}
