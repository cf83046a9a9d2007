//! [`Expectations`]: an operator's expectations about a policy, read from a separate file.
//!
//! This module holds the values of the file. Another crate, which knows the tools and the chains of calls,
//! checks them with the evaluator's answers.

use portcullis_types::{Access, GuestPath, ToolName};
use serde::Serialize;
use thiserror::Error;

use crate::{
    Approval, DenialCode, FlowLabel, HostRule, KnownTools, MountName, PathPattern, PolicyError, PolicySource,
    ProfileName, SecretName, SourceLocation, WorkspaceSecurityPolicy,
    file::{Faults, read_expectations},
};

/// The maximum size of a file of expectations: 1 MiB.
pub const MAX_EXPECTATIONS_BYTES: usize = 1024 * 1024;

/// The maximum number of expectations of one file.
pub const MAX_EXPECTATIONS: usize = 10_000;

/// The expectations of one file, in the order of the text within each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectations {
    /// The entries `[[expect]]`.
    pub answers: Vec<ExpectedVerdict>,
    /// The entries `[[never]]`.
    pub never: Vec<ForbiddenFlow>,
    /// The entries `[[unchanged]]`.
    pub unchanged: Vec<PinnedDigest>,
}

impl Expectations {
    /// Reads a file of expectations about a policy. Tools, mounts, profiles, secrets and variables must be known.
    ///
    /// # Errors
    /// [`PolicyError`] with the faults of the text, at most 50.
    pub fn read(
        source: PolicySource<'_>,
        policy: &WorkspaceSecurityPolicy,
        known: &KnownTools,
    ) -> Result<Self, PolicyError> {
        let mut faults = Faults::new(source);
        let expectations = read_expectations(&mut faults, policy, known);
        if faults.is_empty() {
            return Ok(expectations);
        }
        let (faults, omitted) = faults.into_parts();
        Err(PolicyError { faults, omitted })
    }

    /// Returns the number of expectations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.answers.len() + self.never.len() + self.unchanged.len()
    }

    /// Returns whether there are no expectations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An entry `[[expect]]`: the answer to calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedVerdict {
    /// The `name` of the entry, for people.
    pub name: Option<String>,
    /// The location of the entry.
    pub location: SourceLocation,
    /// The tools that are called.
    pub tools: ExpectedTools,
    /// The subjects of the calls. Empty for calls whose arguments name no subject.
    pub subjects: Vec<ExpectedSubject>,
    /// How paths are accessed: one or both.
    pub access: Vec<Access>,
    /// The answer to each of the calls.
    pub verdict: Approval,
    /// The code of each denial. `None` means any code.
    pub code: Option<DenialCode>,
    /// The labels of the run.
    pub after: Vec<FlowLabel>,
}

/// The tools of an `[[expect]]` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedTools {
    /// All tools.
    All,
    /// These tools.
    Named(Vec<ToolName>),
    /// The tools, and the steps of operations, with this profile.
    OfProfile(ProfileName),
}

/// A subject of the calls of an `[[expect]]` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedSubject {
    /// One path.
    Path(GuestPath),
    /// All paths of a pattern.
    Paths(PathPattern),
    /// A URL that the call requests.
    Url(String),
    /// A shell command that the call runs.
    Command(String),
}

/// An entry `[[never]]`: a data flow that must not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForbiddenFlow {
    /// The `name` of the entry, for people.
    pub name: Option<String>,
    /// The location of the entry.
    pub location: SourceLocation,
    /// The source of the data. `None` means anything that a model sends.
    pub reads: Option<ExpectedSource>,
    /// The mount that the data must not reach.
    pub writes: Option<MountName>,
    /// The hosts that the data must not reach.
    pub reaches: Option<ExpectedHosts>,
    /// Whether only flows without any approval question are forbidden.
    pub only_unasked: bool,
}

/// The source of the data of a `[[never]]` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedSource {
    /// The files of a mount.
    Mount(MountName),
    /// The responses to requests.
    Web,
    /// A secret of the policy.
    Secret(SecretName),
    /// A variable that commands get.
    Variable(String),
}

/// The hosts of a `[[never]]` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedHosts {
    /// Every host.
    Any,
    /// These hosts, with the scheme and the port of the rule.
    Rule(HostRule),
    /// These hosts, with any scheme and port.
    Host(HostRule),
}

impl ExpectedHosts {
    /// Returns whether a granted rule allows one of these hosts.
    #[must_use]
    pub fn meets(&self, granted: &HostRule) -> bool {
        match self {
            Self::Any => true,
            Self::Rule(rule) => rule.overlaps(granted),
            Self::Host(rule) => rule.overlaps_host_of(granted),
        }
    }
}

/// An entry `[[unchanged]]`: a policy digest that a person has approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedDigest {
    /// The location of the entry.
    pub location: SourceLocation,
    /// The digest or its beginning, in lowercase hexadecimal.
    pub digest: String,
    /// The last day on which the entry is valid. `None` means forever.
    pub until: Option<Day>,
    /// The person who approved the digest.
    pub by: Option<String>,
}

/// A day of the calendar, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Day {
    /// The year, which the text writes with four digits.
    pub year: i16,
    /// The month, from 1.
    pub month: u8,
    /// The day of the month, from 1.
    pub day: u8,
}

/// A text that is not a day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Error)]
#[error("it is not a day; write for example \"2026-12-31\"")]
pub struct InvalidDay;

impl Day {
    /// Reads `2026-12-31`.
    ///
    /// # Errors
    /// [`InvalidDay`] if the text has another form, or is not a day of the calendar.
    pub fn parse(text: &str) -> Result<Self, InvalidDay> {
        let has_form = text.len() == 10
            && text.bytes().enumerate().all(|(index, byte)| match index {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        if !has_form {
            return Err(InvalidDay);
        }
        let number =
            |range: std::ops::Range<usize>| text.get(range).and_then(|part| part.parse::<i16>().ok());
        let small = |range| number(range).and_then(|number| u8::try_from(number).ok());
        let (Some(year), Some(month), Some(day)) = (number(0..4), small(5..7), small(8..10)) else {
            return Err(InvalidDay);
        };
        let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let days = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if is_leap => 29,
            2 => 28,
            _ => 0,
        };
        if day == 0 || day > days { Err(InvalidDay) } else { Ok(Self { year, month, day }) }
    }
}

impl std::fmt::Display for Day {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests;
