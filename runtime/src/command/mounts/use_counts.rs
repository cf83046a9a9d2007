//! Counts how many calls of an audit log used, or tried to use, each mount.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use portcullis_tools::{
    ToolGrants,
    audit::{self, Outcome, Row, RowEvent, SubjectKind},
    policy::WorkspaceSecurityPolicy,
};
use portcullis_types::ToolErrorKind;
use serde::Serialize;

use crate::{command::audit::each_row, error::CliError};

/// The maximum number of pairs of a tool and a mount that the map does not contain. Callers choose such
/// names, so their number is bounded. Pairs of the map are always counted.
const MAX_FURTHER_PAIRS: usize = 10_000;

/// The number of a tool's calls that used a mount, and of refused calls that named a path in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct UseCount {
    pub(crate) used: u64,
    pub(crate) tried: u64,
    /// The number of used calls that wrote, created or removed a file.
    #[serde(skip)]
    pub(crate) wrote: u64,
    /// The number of used calls whose accesses were not observed. They could have used the mount.
    #[serde(skip)]
    pub(crate) unobserved: u64,
}

/// The calls of one tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ToolUse {
    pub(crate) calls: u64,
    /// Requests and connections that the policy allowed.
    pub(crate) requests: u64,
}

/// The counts of an audit log, by tool and mount. A step counts under its own name.
#[derive(Debug, Default)]
pub(crate) struct UseCounts {
    tools: BTreeMap<String, ToolUse>,
    mounts: BTreeSet<String>,
    pairs: BTreeMap<(String, String), UseCount>,
    further_pairs: usize,
}

impl UseCounts {
    /// Creates counts of zero for the tools of a map.
    pub(crate) fn new(grants: &[ToolGrants], policy: &WorkspaceSecurityPolicy) -> Self {
        Self {
            tools: grants.iter().map(|grants| (name_of(grants).to_owned(), ToolUse::default())).collect(),
            mounts: policy.mounts().iter().map(|mount| mount.name.to_string()).collect(),
            pairs: BTreeMap::new(),
            further_pairs: 0,
        }
    }

    /// Counts the calls of a log, row by row. Without a log all counts are 0.
    pub(crate) fn read(
        path: &Path,
        grants: &[ToolGrants],
        policy: &WorkspaceSecurityPolicy,
    ) -> Result<Self, CliError> {
        let mut counts = Self::new(grants, policy);
        each_row(path, |row| counts.add(&row))?;
        Ok(counts)
    }

    /// Counts a row.
    pub(crate) fn add(&mut self, row: &Row) {
        if row.event != RowEvent::End {
            return;
        }
        // A tool that is not in the map is not counted.
        let Some(tool) = self.tools.get_mut(&*row.tool) else { return };
        tool.calls += 1;
        let dialled = row.connections.iter().filter(|connection| connection.address.is_some());
        tool.requests += row.requests.len() as u64 + dialled.map(|connection| connection.count).sum::<u64>();
        for mount in &row.mounts_used {
            let Some(count) = self.count(row, mount) else { continue };
            count.used += 1;
            match &row.touched {
                None => count.unobserved += 1,
                Some(touched) => {
                    let own_touches = touched.iter().filter(|touched| touched.mount == *mount);
                    let changes = |touched: &audit::TouchedMount| {
                        touched.written.saturating_add(touched.created).saturating_add(touched.removed)
                    };
                    count.wrote += u64::from(own_touches.map(changes).any(|changes| changes > 0));
                }
            }
        }
        if row.outcome == Some(Outcome::Error(ToolErrorKind::Denied)) {
            let paths = row.subjects.iter().filter(|subject| subject.kind == SubjectKind::Path);
            let mounts: BTreeSet<&str> =
                paths.filter_map(|path| path.value.strip_prefix('/')?.split('/').next()).collect();
            for mount in mounts {
                if let Some(count) = self.count(row, mount) {
                    count.tried += 1;
                }
            }
        }
    }

    /// Returns the count of a row's tool in a mount. `None` if the name is not a mount and the limit of names
    /// is reached.
    fn count(&mut self, row: &Row, mount: &str) -> Option<&mut UseCount> {
        let pair = (row.tool.to_string(), mount.to_owned());
        if !self.mounts.contains(mount) && !self.pairs.contains_key(&pair) {
            if self.further_pairs == MAX_FURTHER_PAIRS {
                return None;
            }
            self.further_pairs += 1;
        }
        Some(self.pairs.entry(pair).or_default())
    }

    /// Returns the count of a tool or step in a mount.
    pub(crate) fn of(&self, grants: &ToolGrants, mount: &str) -> UseCount {
        self.pairs.get(&(name_of(grants).to_owned(), mount.to_owned())).copied().unwrap_or_default()
    }

    /// Returns the calls of a tool or step.
    pub(crate) fn of_tool(&self, grants: &ToolGrants) -> ToolUse {
        self.tools.get(name_of(grants)).copied().unwrap_or_default()
    }

    /// Returns the mounts that a tool or step used or tried to use, granted or not.
    pub(crate) fn mounts_of(&self, grants: &ToolGrants) -> impl Iterator<Item = (&str, UseCount)> {
        let name = name_of(grants);
        let own_pairs = self.pairs.range((name.to_owned(), String::new())..);
        own_pairs
            .take_while(move |((tool, _), _)| tool == name)
            .map(|((_, mount), count)| (mount.as_str(), *count))
    }
}

fn name_of(grants: &ToolGrants) -> &str {
    grants.step.as_ref().unwrap_or(&grants.tool)
}

#[cfg(test)]
mod tests {
    use portcullis_tools::policy::{Approval, DEFAULT_POLICY, LoadOptions, PolicySource};
    use portcullis_types::SandboxTier;

    use super::*;

    fn counts(tool: &str) -> (UseCounts, ToolGrants) {
        let operator = PolicySource { name: "p", text: DEFAULT_POLICY };
        let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
        let policy = WorkspaceSecurityPolicy::load(&options).expect("the shipped policy");
        let grants = ToolGrants {
            tool: tool.to_owned(),
            step: None,
            profile: String::new(),
            verdict: Approval::Allow,
            rule: String::new(),
            location: None,
            mounts: Vec::new(),
            hosts: Vec::new(),
        };
        (UseCounts::new(std::slice::from_ref(&grants), &policy), grants)
    }

    fn row(fields: &str) -> Row {
        let hash = "0".repeat(64);
        let head = r#""seq":1,"time":"2026-11-26T12:00:00Z","event":"end","process":"1-1-1""#;
        serde_json::from_str(&format!("{{{head},{fields},\"prev\":\"{hash}\",\"hash\":\"{hash}\"}}"))
            .expect("a row")
    }

    #[test]
    fn a_use_is_a_read_a_write_or_not_observed() {
        let (mut counts, grants) = counts("t");
        let touched = |written| {
            format!(
                r#""tool":"t","mounts_used":["shared"],"touched":[{{"mount":"shared","read":1,"written":{written},"created":0,"removed":0}}]"#
            )
        };
        counts.add(&row(&touched(0)));
        counts.add(&row(&touched(2)));
        counts.add(&row(r#""tool":"t","mounts_used":["shared"]"#));
        counts.add(&row(r#""tool":"unknown","mounts_used":["shared"]"#));
        let expected = UseCount { used: 3, tried: 0, wrote: 1, unobserved: 1 };
        assert_eq!(counts.of(&grants, "shared"), expected);
        assert_eq!(counts.of_tool(&grants).calls, 3);
    }

    #[test]
    fn names_that_callers_choose_are_bounded() {
        let (mut counts, grants) = counts("t");
        let denied = |path: &str| {
            row(&format!(
                r#""tool":"t","outcome":"denied","subjects":[{{"argument":"p","kind":"path","value":"{path}"}}]"#
            ))
        };
        for number in 0..MAX_FURTHER_PAIRS + 10 {
            counts.add(&denied(&format!("/m{number}/x")));
        }
        counts.add(&denied("/vault/x"));
        assert_eq!(counts.mounts_of(&grants).count(), MAX_FURTHER_PAIRS + 1);
        assert_eq!(counts.of(&grants, "vault").tried, 1, "a mount of the policy always counts");
    }
}
