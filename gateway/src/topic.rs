//! The topics of events: a space, an agent, a run.

/// Returns the topic of a space's events.
pub(crate) fn for_space(id: &str) -> String {
    format!("space:{id}")
}

/// Returns the topic of an agent's events.
pub(crate) fn for_agent(id: &str) -> String {
    format!("agent:{id}")
}

/// Returns the topic of a run's events.
pub(crate) fn for_run(id: &str) -> String {
    format!("run:{id}")
}
