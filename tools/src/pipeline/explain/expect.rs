//! Decides whether a policy meets its operator's expectations. It enumerates all calls that an expectation
//! covers, and judges them with the same functions as real calls. Nothing is sampled, so a claim about all
//! paths or all chains holds for all of them.

mod coverage;
mod flows;
mod report;
mod verdicts;

use portcullis_policy::{Day, Expectations, PinnedDigest, PolicyProvenance, WorkspaceSecurityPolicy};

pub use coverage::{Coverage, UncoveredGrant};
pub use report::{
    Counterexample, ExpectationKind, ExpectationReport, ExpectationResult, FailedExpectations, JudgedCall,
};

use super::{ExplainedTool, Explainer};

use coverage::Mentions;
use verdicts::VerdictChecker;

impl Explainer {
    /// Creates an explainer that judges names only: it opens no mount and follows no symlink.
    #[must_use]
    pub fn by_names(policy: WorkspaceSecurityPolicy, provenance: PolicyProvenance) -> Self {
        Self {
            policy,
            provenance,
            mounts: crate::sandbox::mounts::MountTable::default(),
            exposed_files: std::sync::Arc::default(),
            missing_mounts: Vec::new(),
        }
    }

    /// Evaluates expectations. `tools` must be the complete list. `today` is compared with `until`.
    #[must_use]
    pub fn decide_expectations(
        &self,
        expectations: &Expectations,
        tools: &[ExplainedTool],
        today: Day,
    ) -> ExpectationReport {
        let mut mentions = Mentions::default();
        let mut answers = VerdictChecker::new(self, tools);
        let mut results: Vec<ExpectationResult> =
            expectations.answers.iter().map(|expected| answers.decide(expected, &mut mentions)).collect();
        results.extend(expectations.never.iter().map(|flow| self.decide_flow(flow, tools, &mut mentions)));
        results.extend(expectations.unchanged.iter().map(|signed| self.decide_signed(signed, today)));
        results.sort_by(|one, other| one.location.cmp(&other.location));
        ExpectationReport { results, coverage: self.coverage(tools, &mentions) }
    }

    /// Checks that the policy is the one that was signed off.
    fn decide_signed(&self, signed: &PinnedDigest, today: Day) -> ExpectationResult {
        let digest = self.policy.digest().as_str();
        let by = signed.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
        let problem = match signed.until {
            Some(until) if today > until => Some(format!("expired: it was signed off{by} until {until}")),
            _ if !digest.starts_with(&signed.digest) => {
                Some(format!("the policy was changed after it was signed off{by}: its digest is {digest}"))
            }
            _ => None,
        };
        ExpectationResult {
            kind: ExpectationKind::Unchanged,
            name: format!("unchanged since it was signed off{by}"),
            location: signed.location.clone(),
            holds: problem.is_none(),
            cases: 1,
            counterexample: problem.map(|message| Counterexample::Problem { message }),
        }
    }
}

#[cfg(test)]
mod tests;
