//! How a run's end is told to strangers: a stable code, and a sentence without the operator's part.

use portcullis_agent::AgentEnd;

/// What is said of an end that is not the model's whole answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Stable, for programs.
    pub(super) code: &'static str,
    /// For people.
    pub(super) message: String,
}

/// Why a run ended without a whole answer; none if it has one.
pub(super) fn failure(end: &AgentEnd) -> Option<Failure> {
    let (code, message) = match end {
        AgentEnd::Answer { .. } => return None,
        AgentEnd::MaxIterations { limit } => ("max_iterations", format!("max iterations reached: {limit}")),
        AgentEnd::Length { .. } => ("length", "the limit of tokens cut the answer off".to_owned()),
        AgentEnd::Repeated { tool } => ("repeated", format!("the same call of `{tool}` over and over")),
        AgentEnd::Cancelled => ("cancelled", "the run was cancelled".to_owned()),
        // The words may hold an address, an account or what the provider quotes: they are the operator's.
        AgentEnd::Provider { kind, message: _ } => ("provider", format!("the model gave no answer: {kind}")),
        AgentEnd::Internal { message: _ } => ("internal", "an internal error ended the run".to_owned()),
    };
    Some(Failure { code, message })
}

/// What there is of an answer.
pub(super) fn answer(end: &AgentEnd) -> Option<&str> {
    match end {
        AgentEnd::Answer { text } | AgentEnd::Length { text } => Some(text),
        AgentEnd::MaxIterations { .. }
        | AgentEnd::Repeated { .. }
        | AgentEnd::Cancelled
        | AgentEnd::Provider { .. }
        | AgentEnd::Internal { .. } => None,
    }
}
