//! What kept the shell from running a command. What a command itself does, its exit code included, is none.

use std::{io, path::PathBuf};

use portcullis_types::{ShellPosture, ToolError, chain};
use tonic::{Code, Status};

use super::protocol::CODE_KEY;

/// The code of an error for a model: there is no session now, and may be soon.
pub(super) const SHELL_UNAVAILABLE: &str = "shell_unavailable";

/// Why a sidecar cannot be used. For operators: a model learns less.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// Nobody said how a sidecar is to be had.
    #[error("the shell is switched off here: {reason}")]
    Disabled {
        /// Why.
        reason: String,
    },
    /// The file with the sidecar's token cannot be used.
    #[error("the token file {} cannot be used", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A running sidecar cannot be reached.
    #[error("no sidecar answers at {}", path.display())]
    Connect {
        /// Its socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A sidecar of our own could not be started.
    #[error("start a sidecar")]
    Start {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It does not speak as it should.
    #[error("the sidecar does not answer as one should")]
    Protocol {
        /// The cause.
        #[source]
        source: tonic::transport::Error,
    },
    /// It answered with something that this build does not know.
    #[error("the sidecar's answer is not one: {problem}")]
    Answer {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// It refused, or is gone.
    #[error("the sidecar refused: {} ({code})", status.message())]
    Refused {
        /// The protocol's word for it, such as `posture`; the status where there is none.
        code: String,
        /// All that it said.
        status: Box<Status>,
    },
    /// A session has less than the policy asks for, whatever the sidecar says of itself.
    #[error("the sidecar's session is `{found}`, and the policy asks for `{least}` at least")]
    Posture {
        /// What it has.
        found: String,
        /// What the policy asks for.
        least: ShellPosture,
    },
}

impl SidecarError {
    pub(super) fn refused(status: Status) -> Self {
        let named = status.metadata().get(CODE_KEY).and_then(|code| code.to_str().ok());
        let code = named.map_or_else(|| format!("{:?}", status.code()), str::to_owned);
        Self::Refused { code, status: Box::new(status) }
    }

    /// Whether the connection, and every session with it, is gone.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Refused { code, status } => {
                code == "stopping"
                    // Without a code of the daemon's it is the transport that speaks.
                    || (!is_daemons(status)
                        && matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled))
            }
            Self::Protocol { .. } | Self::Connect { .. } | Self::Start { .. } => true,
            Self::Disabled { .. } | Self::Token { .. } | Self::Answer { .. } | Self::Posture { .. } => false,
        }
    }

    /// Whether it is for what this machine is that there is no session, and not for what happens on it now.
    pub(super) fn is_about_this_machine(&self) -> bool {
        match self {
            Self::Posture { .. } => true,
            Self::Refused { code, .. } => code == "posture",
            _ => false,
        }
    }

    /// Whether a command of the session is running, so that this one was not started.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "busy")
    }

    /// Whether the session is gone, and the connection is not.
    pub(super) fn ends_session(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if matches!(code.as_str(), "not_found" | "session_ended" | "not_killed"))
    }

    /// Whether nothing of the command was run, whatever was said before, and its session goes on.
    pub(super) fn keeps_session(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if matches!(code.as_str(), "limit" | "not_started" | "invalid" | "busy" | "command_denied"))
    }

    /// What a model is told. `had_begun`: the command may have run in part; nobody runs it again.
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
                // Whatever the sidecar said before: it is the one that knows.
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
