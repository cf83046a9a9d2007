//! Failures of the shell to run a command. A command's own outcome, also its exit code, is not a failure.

use std::{io, path::PathBuf};

use portcullis_policy::DenialCode;
use portcullis_types::{ShellPosture, ToolError, chain};
use tonic::{Code, Status};

use portcullis_shell_protocol::CODE_KEY;

/// The model's error code when there is no session now, but may be soon.
pub(super) const SHELL_UNAVAILABLE: &str = "shell_unavailable";

/// Why a sidecar cannot be used. For operators: a model learns less.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// No sidecar was configured.
    #[error("the shell is switched off here: {reason}")]
    Disabled {
        /// The operator's or the platform's reason for it.
        reason: String,
    },
    /// The file with the sidecar's token cannot be used.
    #[error("the token file {} cannot be used", path.display())]
    Token {
        /// The token file's path.
        path: PathBuf,
        /// The I/O error of the file, or its fault.
        #[source]
        source: io::Error,
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
    /// A sidecar of our own could not be started.
    #[error("start a sidecar")]
    Start {
        /// The error of the step that failed.
        #[source]
        source: io::Error,
    },
    /// It does not speak the protocol.
    #[error("the sidecar does not follow the protocol")]
    Protocol {
        /// The error of the transport.
        #[source]
        source: tonic::transport::Error,
    },
    /// It answered with a message that this build does not know.
    #[error("the sidecar's answer is malformed: {problem}")]
    Answer {
        /// The problem with the answer.
        problem: &'static str,
    },
    /// It refused, or is gone.
    #[error("the sidecar refused: {} ({code})", status.message())]
    Refused {
        /// The protocol's code, such as `posture`; the gRPC status if there is none.
        code: String,
        /// The gRPC status, with the message.
        status: Box<Status>,
    },
    /// A session's posture is weaker than the policy requires, whatever the sidecar claims.
    #[error("the sidecar's session is `{found}`, and the policy asks for `{least}` at least")]
    Posture {
        /// The session's posture.
        found: String,
        /// The posture that the policy requires.
        least: ShellPosture,
    },
}

impl SidecarError {
    pub(super) fn refused(status: Status) -> Self {
        let named = status.metadata().get(CODE_KEY).and_then(|code| code.to_str().ok());
        let code = named.map_or_else(|| format!("{:?}", status.code()), str::to_owned);
        Self::Refused { code, status: Box::new(status) }
    }

    /// Whether the connection, and with it every session, is lost.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Refused { code, status } => {
                code == "stopping"
                    // Without a code of the daemon's, the status comes from the transport.
                    || (!is_daemons(status)
                        && matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled))
            }
            Self::Protocol { .. } | Self::Connect { .. } | Self::Start { .. } => true,
            Self::Disabled { .. } | Self::Token { .. } | Self::Answer { .. } | Self::Posture { .. } => false,
        }
    }

    /// Whether this machine cannot confine a session, as opposed to a passing failure.
    pub(super) fn is_about_this_machine(&self) -> bool {
        match self {
            Self::Posture { .. } => true,
            Self::Refused { code, .. } => code == "posture",
            _ => false,
        }
    }

    /// Whether this command was not started because another one of the session is running.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "busy")
    }

    /// Whether the sidecar knows no such session.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if matches!(code.as_str(), "not_found" | "session_ended"))
    }

    /// Whether the session is lost but not the connection.
    pub(super) fn ends_session(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if matches!(code.as_str(), "not_found" | "session_ended" | "not_killed"))
    }

    /// Whether no part of the command ran, whatever was reported before, and its session goes on.
    pub(super) fn keeps_session(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if matches!(code.as_str(), "limit" | "not_started" | "invalid" | "busy" | "command_denied"))
    }

    /// The error for the model. `had_begun`: the command may have run in part, and is not run again.
    pub(super) fn for_model(&self, had_begun: bool) -> ToolError {
        let detail = chain(self);
        let error = match self {
            Self::Disabled { reason } => ToolError::unavailable(format!("there is no shell here: {reason}"))
                .with_code("shell_disabled"),
            Self::Refused { code, status } => match code.as_str() {
                "command_denied" => {
                    ToolError::denied(format!("the command is refused: {}", status.message()))
                        .with_code("command_denied")
                }
                "invalid" => ToolError::invalid_arguments(status.message().to_owned()),
                "limit" => ToolError::resource_limit(status.message().to_owned()),
                // Even if it had reported a start: the sidecar knows that bash did not start.
                "not_started" | "shell" => ToolError::unavailable(
                    "bash cannot be started here, so nothing of the command was run; `portcullis doctor` tells the operator why",
                )
                .with_code(SHELL_UNAVAILABLE),
                _ if had_begun => ToolError::unavailable(
                    "the shell was lost while the command ran; it may have run in part, and is not run again",
                )
                .with_code("shell_lost"),
                "posture" => ToolError::unavailable(
                    "the shell cannot be confined here as the policy asks, so it does not run",
                )
                .with_code("not_confined"),
                _ => ToolError::unavailable("the shell cannot be used now").with_code(SHELL_UNAVAILABLE),
            },
            Self::Posture { .. } => ToolError::unavailable(
                "the shell cannot be confined here as the policy asks, so it does not run",
            )
            .with_code("not_confined"),
            _ if had_begun => ToolError::unavailable(
                "the shell was lost while the command ran; it may have run in part, and is not run again",
            )
            .with_code("shell_lost"),
            _ => ToolError::unavailable("the shell cannot be used now").with_code(SHELL_UNAVAILABLE),
        };
        error.with_operator_detail(detail)
    }
}

fn is_daemons(status: &Status) -> bool {
    status.metadata().contains_key(CODE_KEY)
}

/// The error of a command whose session was ended under it.
pub(super) fn withdrawn() -> ToolError {
    ToolError::denied(
        "another call of this run has read what the policy keeps from the network, so the session of this command was \
         ended, which has a network; the command may have run in part, and is not run again",
    )
    .with_code(DenialCode::FlowDenied.as_str())
}
