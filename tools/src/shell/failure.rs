//! Why the shell failed to run a command. A command that ran and exited with an error is not such a failure.

use std::{io, path::PathBuf};

use portcullis_policy::DenialCode;
use portcullis_types::{ShellPosture, ToolError, ToolErrorCode, error_chain};
use tonic::{Code, Status};

use crate::private_file::PrivateFileError;
use portcullis_shell_protocol::{CODE_KEY, RefusalCode};

/// Why a sidecar cannot be used. For operators; a model gets less detail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// No sidecar is configured.
    #[error("the shell is switched off here: {reason}")]
    Disabled {
        /// The reason, from the operator or the platform.
        reason: String,
    },
    /// The file with the sidecar's token cannot be read, or others can read it.
    #[error("cannot read the token of the sidecar in {}", path.display())]
    Token {
        /// The token file's path.
        path: PathBuf,
        /// Why the token file cannot be used.
        #[source]
        source: PrivateFileError,
    },
    /// A running sidecar cannot be reached.
    #[error("no sidecar answers at {}", path.display())]
    Connect {
        /// The path of the sidecar's socket.
        path: PathBuf,
        /// The I/O error of the connection.
        #[source]
        source: io::Error,
    },
    /// A sidecar of this program could not be started.
    #[error("cannot start a sidecar")]
    Start {
        /// The error of the step that failed.
        #[source]
        source: io::Error,
    },
    /// The sidecar does not follow the protocol.
    #[error("the sidecar does not follow the protocol")]
    Protocol {
        /// The error of the transport.
        #[source]
        source: tonic::transport::Error,
    },
    /// The sidecar sent a message that this build does not know.
    #[error("the sidecar's answer is malformed: {problem}")]
    Answer {
        /// The problem with the answer.
        problem: &'static str,
    },
    /// The sidecar refused the request, or has gone away.
    #[error("the sidecar refused: {} ({code})", status.message())]
    Refused {
        /// The protocol's code, such as `posture`, or the name of the gRPC status if there is no code.
        code: String,
        /// The gRPC status, with the message.
        status: Box<Status>,
    },
    /// A session's posture is weaker than the policy requires. The sidecar's own claim does not count.
    #[error("the sidecar's session is `{found}`, and the policy asks for `{required_posture}` at least")]
    Posture {
        /// The session's posture.
        found: String,
        /// The posture that the policy requires.
        required_posture: ShellPosture,
    },
}

impl SidecarError {
    pub(super) fn refused(status: Status) -> Self {
        let metadata_code = status.metadata().get(CODE_KEY).and_then(|code| code.to_str().ok());
        let code = metadata_code.map_or_else(|| format!("{:?}", status.code()), str::to_owned);
        Self::Refused { code, status: Box::new(status) }
    }

    /// Whether the connection is lost, and all sessions with it.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                self.is_refusal(&[RefusalCode::Stopping])
                    // A status without a sidecar code comes from the transport.
                    || (!is_from_sidecar(status)
                        && matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled))
            }
            Self::Protocol { .. } | Self::Connect { .. } | Self::Start { .. } => true,
            Self::Disabled { .. } | Self::Token { .. } | Self::Answer { .. } | Self::Posture { .. } => false,
        }
    }

    /// Whether this machine cannot confine a session. All other failures are temporary.
    pub(super) fn is_about_this_machine(&self) -> bool {
        match self {
            Self::Posture { .. } => true,
            _ => self.is_refusal(&[RefusalCode::Posture]),
        }
    }

    /// Whether this command was not started because another command of the session is running.
    pub(super) fn is_busy(&self) -> bool {
        self.is_refusal(&[RefusalCode::Busy])
    }

    /// Whether the sidecar does not know the session.
    pub(super) fn is_not_found(&self) -> bool {
        self.is_refusal(&[RefusalCode::NotFound, RefusalCode::SessionEnded])
    }

    /// Whether the session is lost, but not the connection.
    pub(super) fn ends_session(&self) -> bool {
        self.is_refusal(&[RefusalCode::NotFound, RefusalCode::SessionEnded, RefusalCode::NotKilled])
    }

    /// Whether no part of the command ran, even if a start was reported, and the session remains usable.
    pub(super) fn keeps_session(&self) -> bool {
        self.is_refusal(&[
            RefusalCode::Limit,
            RefusalCode::NotStarted,
            RefusalCode::Invalid,
            RefusalCode::Busy,
            RefusalCode::CommandDenied,
        ])
    }

    /// Whether a later call may get a session although this one did not.
    pub(super) fn may_recover(&self) -> bool {
        match self {
            Self::Disabled { .. } | Self::Posture { .. } => false,
            _ => !self.is_refusal(&[
                RefusalCode::CommandDenied,
                RefusalCode::Invalid,
                RefusalCode::Limit,
                RefusalCode::Posture,
            ]),
        }
    }

    /// Whether the sidecar refused with one of these codes.
    fn is_refusal(&self, codes: &[RefusalCode]) -> bool {
        let Self::Refused { status, .. } = self else { return false };
        RefusalCode::of(status).is_some_and(|code| codes.contains(&code))
    }

    /// Converts the failure to an error for the model. If `had_begun`, the error says that the command
    /// may have run in part.
    pub(super) fn for_model(&self, had_begun: bool) -> ToolError {
        let detail = error_chain(self);
        let unusable = || {
            let error = ToolError::unavailable("the shell cannot be used now");
            error.with_code(ToolErrorCode::ShellUnavailable)
        };
        let error = match self {
            Self::Disabled { reason } => ToolError::unavailable(format!("there is no shell here: {reason}"))
                .with_code(DenialCode::ShellDisabled.as_str()),
            Self::Refused { status, .. } => match RefusalCode::of(status) {
                Some(RefusalCode::CommandDenied) => {
                    ToolError::denied(format!("the command is refused: {}", status.message()))
                        .with_code(DenialCode::CommandDenied.as_str())
                }
                Some(RefusalCode::Invalid) => ToolError::invalid_arguments(status.message().to_owned()),
                Some(RefusalCode::Limit) => ToolError::resource_limit(status.message().to_owned()),
                // This holds even after a reported start: the sidecar knows that bash did not start.
                Some(RefusalCode::NotStarted | RefusalCode::Shell) => ToolError::unavailable(
                    "bash cannot be started here, so nothing of the command was run; `portcullis doctor` tells the operator why",
                )
                .with_code(ToolErrorCode::ShellUnavailable),
                _ if had_begun => ToolError::unavailable(
                    "the shell was lost while the command ran; it may have run in part, and is not run again",
                )
                .with_code(ToolErrorCode::ShellLost),
                Some(RefusalCode::Posture) => ToolError::unavailable(
                    "this machine cannot confine the shell as the policy requires, so the shell does not run",
                )
                .with_code(ToolErrorCode::NotConfined),
                _ => unusable(),
            },
            Self::Posture { .. } => ToolError::unavailable(
                "this machine cannot confine the shell as the policy requires, so the shell does not run",
            )
            .with_code(ToolErrorCode::NotConfined),
            _ if had_begun => ToolError::unavailable(
                "the shell was lost while the command ran; it may have run in part, and is not run again",
            )
            .with_code(ToolErrorCode::ShellLost),
            _ => unusable(),
        };
        error.with_operator_detail(detail)
    }
}

fn is_from_sidecar(status: &Status) -> bool {
    status.metadata().contains_key(CODE_KEY)
}

/// Returns the error of a command whose session was ended while it ran.
pub(super) fn withdrawn_error() -> ToolError {
    ToolError::denied(
        "another call of this run has read what the policy keeps from the network, so the session of this command was \
         ended, which has a network; the command may have run in part, and is not run again",
    )
    .with_code(DenialCode::FlowDenied.as_str())
}
