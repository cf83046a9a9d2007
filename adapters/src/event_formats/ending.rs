//! Describes a run's end to outsiders: a stable code, and a sentence without details for the operator.

use portcullis_agent::AgentEnd;

/// The description of an end without a complete answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IncompleteEnd {
    /// The stable code, for programs.
    pub(super) code: &'static str,
    /// The message, for people.
    pub(super) message: String,
}

/// Describes why a run ended without a complete answer. Returns `None` if the answer is complete.
pub(super) fn failure(end: &AgentEnd) -> Option<IncompleteEnd> {
    let (code, message) = match end {
        AgentEnd::Answer { .. } => return None,
        AgentEnd::MaxIterations { limit } => ("max_iterations", format!("max iterations reached: {limit}")),
        AgentEnd::Length { .. } => ("length", "the limit of tokens cut the answer off".to_owned()),
        // Escape the name, because a model may choose it freely.
        AgentEnd::Repeated { tool } => {
            ("repeated", format!("the same call of `{}` over and over", tool.escape_default()))
        }
        AgentEnd::Cancelled => ("cancelled", "the run was cancelled".to_owned()),
        // Drop the provider's message: it may contain a host, an account or quoted data, which only the
        // operator may see.
        AgentEnd::Provider { kind, message: _ } => ("provider", format!("the model gave no answer: {kind}")),
        AgentEnd::Internal { message: _ } => ("internal", "an internal error ended the run".to_owned()),
    };
    Some(IncompleteEnd { code, message })
}

/// Returns the run's answer, even if it was cut off.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tools_name_that_a_model_chose_is_escaped() {
        let end = AgentEnd::Repeated { tool: "a\u{1b}[2J".to_owned() };
        assert_eq!(
            failure(&end).map(|failure| failure.message).as_deref(),
            Some("the same call of `a\\u{1b}[2J` over and over")
        );
    }
}
