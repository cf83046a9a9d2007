//! The rules that a decision considers, for people. The evaluator itself records them, so that an explanation
//! cannot differ from the decision. Enforcement records nothing: its sink is [`NoTrace`], whose calls the
//! compiler removes.

use serde::Serialize;

/// Receives the rules that the evaluator considers, in order.
pub trait TraceSink {
    /// Records one rule. A sink that keeps nothing does not call the closure.
    fn record(&mut self, rule: impl FnOnce() -> TracedRule);
}

/// The sink of enforcement: records nothing and allocates nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTrace;

impl TraceSink for NoTrace {
    #[inline(always)]
    fn record(&mut self, _rule: impl FnOnce() -> TracedRule) {}
}

/// The sink of an explanation: collects all considered rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace(Vec<TracedRule>);

impl Trace {
    /// Returns the rules, in the order in which the evaluator considered them.
    #[must_use]
    pub fn into_rules(self) -> Vec<TracedRule> {
        self.0
    }
}

impl TraceSink for Trace {
    fn record(&mut self, rule: impl FnOnce() -> TracedRule) {
        self.0.push(rule());
    }
}

/// A rule that a decision considered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedRule {
    /// The rule as a path in the policy file, such as `profiles.R.mounts.shared`. [`crate::PolicyProvenance`]
    /// finds its position.
    pub rule: String,
    /// The rule's contribution to the decision, as a phrase for people.
    pub finding: String,
}

impl TracedRule {
    pub(crate) fn new(rule: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { rule: rule.into(), finding: finding.into() }
    }
}
