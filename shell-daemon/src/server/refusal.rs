//! Refusals of a call: a gRPC status, with a stable code in its metadata.

use portcullis_types::chain;

use tonic::{Code, Status, metadata::MetadataValue};

use portcullis_shell_protocol::CODE_KEY;

use crate::ShellError;

/// The codes of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalCode {
    Unauthenticated,
    Version,
    Stopping,
    Limit,
    Posture,
    Mounts,
    Environment,
    Start,
    NotFound,
    Busy,
    CommandDenied,
    Invalid,
    SessionEnded,
    NotStarted,
    Shell,
    Closed,
    NotKilled,
    Failed,
}

impl RefusalCode {
    /// Makes the status. `text` is for operators, and is cut if it is longer than any text of ours.
    pub(super) fn because(self, text: impl Into<String>) -> Status {
        let (word, code) = self.code();
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        let mut status = Status::new(code, text);
        status.metadata_mut().insert(CODE_KEY, MetadataValue::from_static(word));
        status
    }

    const fn code(self) -> (&'static str, Code) {
        match self {
            Self::Unauthenticated => ("unauthenticated", Code::Unauthenticated),
            Self::Version => ("version", Code::FailedPrecondition),
            Self::Stopping => ("stopping", Code::Unavailable),
            Self::Limit => ("limit", Code::ResourceExhausted),
            Self::Posture => ("posture", Code::FailedPrecondition),
            Self::Mounts => ("mounts", Code::PermissionDenied),
            Self::Environment => ("environment", Code::PermissionDenied),
            Self::Start => ("start", Code::Internal),
            Self::NotFound => ("not_found", Code::NotFound),
            Self::Busy => ("busy", Code::FailedPrecondition),
            Self::CommandDenied => ("command_denied", Code::PermissionDenied),
            Self::Invalid => ("invalid", Code::InvalidArgument),
            Self::SessionEnded => ("session_ended", Code::Aborted),
            Self::NotStarted => ("not_started", Code::FailedPrecondition),
            Self::Shell => ("shell", Code::FailedPrecondition),
            Self::Closed => ("closed", Code::FailedPrecondition),
            Self::NotKilled => ("not_killed", Code::Internal),
            Self::Failed => ("failed", Code::Internal),
        }
    }
}

/// The status of a session that could not be started.
pub(super) fn not_started(error: &ShellError) -> Status {
    let refusal = match error {
        ShellError::PostureUnavailable { .. } => RefusalCode::Posture,
        ShellError::ShellUnusable { .. } => RefusalCode::Shell,
        _ => RefusalCode::Start,
    };
    refusal.because(chain(error))
}

/// The status of a command without a result.
pub(super) fn not_run(error: &ShellError) -> Status {
    let refusal = match error {
        ShellError::CommandUnusable { .. } => RefusalCode::Invalid,
        ShellError::TooManyBackgroundCommands { .. } => RefusalCode::Limit,
        ShellError::NotStarted { .. } => RefusalCode::NotStarted,
        ShellError::NotKilled { .. } => RefusalCode::NotKilled,
        _ => RefusalCode::SessionEnded,
    };
    refusal.because(chain(error))
}

const TEXT_BYTES: usize = 2048;
