//! Refusals of a call: the status of a session or a command that failed.

use portcullis_types::error_chain;
use tonic::Status;

pub(super) use portcullis_shell_protocol::RefusalCode;

use crate::ShellError;

/// Returns the status for a session that could not be started.
pub(super) fn start_failure(error: &ShellError) -> Status {
    let refusal = match error {
        ShellError::PostureUnavailable { .. } => RefusalCode::Posture,
        ShellError::ShellUnusable { .. } => RefusalCode::Shell,
        _ => RefusalCode::Start,
    };
    refusal.status(error_chain(error))
}

/// The status for a command without a result.
pub(super) fn run_failure(error: &ShellError) -> Status {
    let refusal = match error {
        ShellError::CommandUnusable { .. } | ShellError::WorkdirUnusable { .. } => RefusalCode::Invalid,
        ShellError::TooManyBackgroundCommands { .. } => RefusalCode::Limit,
        ShellError::NotStarted { .. } => RefusalCode::NotStarted,
        ShellError::NotKilled { .. } => RefusalCode::NotKilled,
        _ => RefusalCode::SessionEnded,
    };
    refusal.status(error_chain(error))
}
