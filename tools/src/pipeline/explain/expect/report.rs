//! The results of expectations, as values and as lines for people.

use std::fmt::{self, Write as _};

use portcullis_policy::{Approval, DenialCode, SourceLocation};
use portcullis_types::{Access, display::text};
use serde::Serialize;
use thiserror::Error;

use super::{super::FlowStep, Coverage};

/// The results of all expectations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpectationReport {
    /// One result for each expectation, in the order of the texts.
    #[serde(rename = "expectations")]
    pub results: Vec<ExpectationResult>,
    /// The grants that no expectation mentions.
    pub coverage: Coverage,
}

impl ExpectationReport {
    /// Whether all expectations hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.results.iter().all(|result| result.holds)
    }
}

portcullis_types::word_enum! {
    /// The kind of an expectation, by its key in the file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    pub enum ExpectationKind {
        /// `[[expect]]`.
        Expect = "expect",
        /// `[[never]]`.
        Never = "never",
        /// `[[unchanged]]`.
        Unchanged = "unchanged",
    }
}

/// Whether one expectation holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpectationResult {
    /// The kind, by the entry's key in the file.
    pub kind: ExpectationKind,
    /// The name in the file, or else a summary of the expectation.
    pub name: String,
    /// The source location of the expectation.
    #[serde(rename = "place")]
    pub location: SourceLocation,
    /// Whether it holds.
    pub holds: bool,
    /// The number of calls or flows that were checked.
    pub cases: u64,
    /// The first case that fails the expectation. `None` if all cases meet it.
    pub counterexample: Option<Counterexample>,
}

/// A case that fails an expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Counterexample {
    /// A call with a different verdict.
    Call(JudgedCall),
    /// The steps of a forbidden flow.
    #[serde(rename = "way")]
    Flow {
        /// The steps, in order. Each leads to one place.
        steps: Vec<FlowStep>,
    },
    /// Another reason.
    Problem {
        /// The reason, for people.
        message: String,
    },
}

/// A call and its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JudgedCall {
    /// The name of the called tool.
    pub tool: String,
    /// The path, URL or command; `None` for a call that names nothing.
    pub subject: Option<String>,
    /// How a path is accessed.
    pub access: Option<Access>,
    /// Whether the call runs, asks, or is refused.
    pub verdict: Approval,
    /// The code of a denial.
    pub code: Option<DenialCode>,
    /// The deciding rule.
    pub rule: String,
    /// The source location of the rule; `None` for a default.
    #[serde(rename = "place")]
    pub location: Option<SourceLocation>,
}

impl ExpectationResult {
    /// Formats one line for people: whether the expectation holds, what it expects, and where it is written.
    /// Deceptive characters are escaped.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { kind, name, location, holds, cases, .. } = self;
        let word = if *holds { "ok   " } else { "FAILS" };
        let count = match (kind, cases) {
            (ExpectationKind::Unchanged, _) => String::new(),
            (_, 1) => ", 1 case".to_owned(),
            (_, cases) => format!(", {cases} cases"),
        };
        format!("{word}  {kind}  {}  ({}{count})", text::inline(name), text::inline(&location.to_string()))
    }
}

/// Writes the line, followed by the counterexample if the expectation fails.
impl fmt::Display for ExpectationResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        match &self.counterexample {
            Some(counterexample) => write!(f, "\n{counterexample}"),
            None => Ok(()),
        }
    }
}

/// Writes indented lines.
impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call) => {
                let JudgedCall { tool, subject, access, verdict, code, rule, location } = call;
                let mut what = tool.clone();
                if let Some(access) = access {
                    // Writing to a string cannot fail.
                    let _ = match access {
                        Access::Read => write!(what, " reads"),
                        Access::Write => write!(what, " writes"),
                    };
                }
                if let Some(subject) = subject {
                    let _ = write!(what, " {subject}");
                }
                let mut verdict_text = verdict.as_str().to_uppercase();
                if let Some(code) = code {
                    let _ = write!(verdict_text, " {code}");
                }
                let from = location.as_ref().map_or_else(|| "default".to_owned(), ToString::to_string);
                write!(
                    f,
                    "       {}: {verdict_text} by {}",
                    text::inline(&what),
                    text::inline(&format!("{rule} ({from})"))
                )
            }
            Self::Flow { steps } => {
                for (index, step) in steps.iter().enumerate() {
                    let gate = match (step.verdict, &step.unasked) {
                        (Approval::Allow, _) => "runs".to_owned(),
                        (Approval::Ask, None) => format!("needs approval: {}", step.rule),
                        (Approval::Ask, Some(rule)) => format!("runs by {rule}"),
                        (Approval::Deny, _) => format!("refused by {}", step.rule),
                    };
                    let line = format!("{} → {} ({gate}) → {}", step.from, step.tool, step.to.join(", "));
                    write!(f, "{}       {}", if index == 0 { "" } else { "\n" }, text::inline(&line))?;
                }
                Ok(())
            }
            Self::Problem { message } => write!(f, "       {}", text::inline(message)),
        }
    }
}

/// A policy that fails its operator's expectations.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", lines(failed, *omitted_results))]
pub struct FailedExpectations {
    /// The failed expectations, at most 50; never empty.
    pub failed: Vec<ExpectationResult>,
    /// The number of failed expectations beyond these.
    pub omitted_results: usize,
}

impl FailedExpectations {
    /// Collects the failed expectations of a report; `None` if all hold.
    #[must_use]
    pub fn of(report: ExpectationReport) -> Option<Self> {
        let mut failed: Vec<ExpectationResult> =
            report.results.into_iter().filter(|result| !result.holds).collect();
        let omitted = failed.len().saturating_sub(MAX_FAILED);
        failed.truncate(MAX_FAILED);
        (!failed.is_empty()).then_some(Self { failed, omitted_results: omitted })
    }
}

/// The maximum number of expectations that an error lists.
const MAX_FAILED: usize = 50;

fn lines(failed: &[ExpectationResult], omitted: usize) -> String {
    let mut lines: Vec<String> = failed.iter().map(ToString::to_string).collect();
    if omitted > 0 {
        lines.push(format!("and {omitted} more"));
    }
    lines.join("\n")
}
