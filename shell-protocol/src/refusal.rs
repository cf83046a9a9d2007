//! [`RefusalCode`]: why the sidecar refuses a call. The code travels in the metadata of the gRPC status.

use tonic::{Code, Status, metadata::MetadataValue};

/// The metadata key of an error's stable code.
pub const CODE_KEY: &str = "portcullis-code";

/// The codes of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCode {
    /// The client has not proved that it may use the sidecar.
    Unauthenticated,
    /// The client and the sidecar have different versions.
    Version,
    /// The sidecar is stopping.
    Stopping,
    /// A limit is reached.
    Limit,
    /// The machine cannot confine a session as required.
    Posture,
    /// The session may not have these mounts.
    Mounts,
    /// The session may not have this environment.
    Environment,
    /// The session cannot be started.
    Start,
    /// There is no such session or command.
    NotFound,
    /// The session is running another command.
    Busy,
    /// A rule refuses the command.
    CommandDenied,
    /// The request is malformed.
    Invalid,
    /// The session is gone with all its state. The command may have run in part.
    SessionEnded,
    /// The command was not started.
    NotStarted,
    /// Bash is missing, or does not work.
    Shell,
    /// The input of the command is closed.
    Closed,
    /// Processes could not be killed.
    NotKilled,
    /// The sidecar failed.
    Failed,
}

impl RefusalCode {
    const ALL: [Self; 18] = [
        Self::Unauthenticated,
        Self::Version,
        Self::Stopping,
        Self::Limit,
        Self::Posture,
        Self::Mounts,
        Self::Environment,
        Self::Start,
        Self::NotFound,
        Self::Busy,
        Self::CommandDenied,
        Self::Invalid,
        Self::SessionEnded,
        Self::NotStarted,
        Self::Shell,
        Self::Closed,
        Self::NotKilled,
        Self::Failed,
    ];

    /// Returns the code of a status. `None` if the status has no code, for example a status from the
    /// transport, or if this build does not know the code.
    #[must_use]
    pub fn of(status: &Status) -> Option<Self> {
        let word = status.metadata().get(CODE_KEY)?.to_str().ok()?;
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }

    /// Makes the status. `text` is for operators, and is cut at `MAX_TEXT_BYTES`.
    #[must_use]
    pub fn status(self, text: impl Into<String>) -> Status {
        let (word, code) = self.words();
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        let mut status = Status::new(code, text);
        status.metadata_mut().insert(CODE_KEY, MetadataValue::from_static(word));
        status
    }

    /// Returns the stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.words().0
    }

    /// The stable word, and the gRPC code.
    const fn words(self) -> (&'static str, Code) {
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

/// The maximum number of bytes of a status's text.
const MAX_TEXT_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_status_is_found_again() {
        for code in RefusalCode::ALL {
            assert_eq!(RefusalCode::of(&code.status("refused")), Some(code));
        }
        assert_eq!(RefusalCode::of(&Status::unavailable("the transport")), None);
    }
}
