//! Counts which mounts recorded calls used, so that an overlay can remove the unused ones.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_policy::{
    Approval, CallRequest, GrantedMount, RequestedSubject, RunContext, ToolDescriptor,
    WorkspaceSecurityPolicy,
};
use portcullis_types::{Access, RoleKind, ToolErrorKind};

use crate::{
    audit::{Confinement, Decision, Outcome, Row, RowEvent},
    pipeline::verdict_by_names,
    replay::RecordedCall,
};

/// The first version of audit rows that record how a call accessed its mounts.
const VERSION_WITH_ACCESS: u64 = 2;

/// How the calls of a profile's tools used the mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileUse {
    /// The calls that the policy allowed.
    pub calls: u64,
    /// The calls among them whose accesses are unknown, such as commands, and calls whose process died.
    pub unobserved: u64,
    /// The strongest access to each mount that was used, and the number of calls that used it.
    pub mounts: BTreeMap<String, (Access, u64)>,
    /// The tools that were called.
    pub tools: BTreeSet<String>,
}

/// How recorded calls used the mounts, by the profile that one policy gives to their tools.
#[derive(Debug)]
pub struct MountUsage<'p> {
    policy: &'p WorkspaceSecurityPolicy,
    profiles: BTreeMap<String, ProfileUse>,
}

impl<'p> MountUsage<'p> {
    /// Starts a count under this policy.
    #[must_use]
    pub fn new(policy: &'p WorkspaceSecurityPolicy) -> Self {
        Self { policy, profiles: BTreeMap::new() }
    }

    /// Counts the call of a row. A refused call used nothing.
    pub fn add(&mut self, row: &Row) {
        if row.event != RowEvent::End || row.decision.is_none() {
            return;
        }
        let Some(call) = RecordedCall::of(row) else {
            return self.add_unknown(row);
        };
        let profile = self.policy.describe(&call.descriptor).profile;
        let usage = self.profiles.entry(profile.to_string()).or_default();
        let run = RunContext { labels: call.labels.clone().into(), ..RunContext::default() };
        let request = CallRequest { tool: &call.descriptor, subjects: &call.subjects, run: &run };
        let mut used = BTreeMap::new();
        // A path that the policy allows counts as used, even if it did not exist or an approver said no.
        if verdict_by_names(self.policy, &request).0 != Approval::Deny {
            usage.tools.insert(row.tool.to_string());
            used.extend(call.subjects.iter().filter_map(|subject| named_mount(&call.descriptor, subject)));
        }
        if has_run(row) {
            usage.calls += 1;
            usage.unobserved += u64::from(!is_observed(row));
            for (mount, access) in touched_mounts(row) {
                let strongest = used.entry(mount).or_insert(access);
                *strongest = access.max(*strongest);
            }
        }
        for (mount, access) in used {
            let (strongest, calls) = usage.mounts.entry(mount).or_insert((access, 0));
            *strongest = access.max(*strongest);
            *calls += 1;
        }
    }

    /// Returns how the calls of a profile's tools used the mounts.
    #[must_use]
    pub fn of(&self, profile: &str) -> ProfileUse {
        self.profiles.get(profile).cloned().unwrap_or_default()
    }

    /// Returns the reductions that these counts allow: for each mount of a profile the remaining access, or
    /// `None`. Empty if a call was not observed, or if there are fewer calls than `min_calls`.
    #[must_use]
    pub fn reductions(
        &self,
        profile: &str,
        granted: &[GrantedMount],
        min_calls: u64,
    ) -> Vec<(GrantedMount, Option<Access>)> {
        let usage = self.of(profile);
        if usage.unobserved > 0 || usage.calls < min_calls.max(1) {
            return Vec::new();
        }
        let left = |mount: &GrantedMount| usage.mounts.get(mount.name.as_str()).map(|(access, _)| *access);
        let granted = granted.iter().map(|mount| (mount.clone(), left(mount)));
        granted.filter(|(mount, left)| left.is_none_or(|left| left < mount.access)).collect()
    }

    /// Counts a call that cannot be read for the profile that its row names.
    fn add_unknown(&mut self, row: &Row) {
        if let Some(profile) = row.profile.as_deref().filter(|_| has_run(row)) {
            let usage = self.profiles.entry(profile.to_owned()).or_default();
            usage.calls += 1;
            usage.unobserved += 1;
        }
    }
}

/// Whether the policy, and the approver if there was one, let the call run.
fn has_run(row: &Row) -> bool {
    row.decision == Some(Decision::Allow)
        && !matches!(row.outcome, Some(Outcome::Error(ToolErrorKind::Denied)))
}

/// Whether the row records what the call accessed.
fn is_observed(row: &Row) -> bool {
    let is_guest = !matches!(row.confinement, Some(Confinement::Shell | Confinement::Native) | None);
    // A row before version 2 has no `touched`, but its `mounts_used` is complete for a guest that ended. For
    // a command, `mounts_used` lists all granted mounts, and the accesses of a native tool are not observed.
    let is_complete_before_v2 = row.v < VERSION_WITH_ACCESS && row.outcome != Some(Outcome::Unknown);
    row.touched.is_some() || (is_guest && is_complete_before_v2)
}

/// Returns the mounts that the row says the call accessed. An older row does not record the kind of access,
/// so assume the strongest.
fn touched_mounts(row: &Row) -> Vec<(String, Access)> {
    let Some(touched) = &row.touched else {
        return row.mounts_used.iter().map(|mount| (mount.to_string(), Access::Write)).collect();
    };
    let kinds = touched.iter().filter_map(|touched| {
        let access = match (touched.written + touched.created + touched.removed, touched.read) {
            (0, 0) => return None,
            (0, _) => Access::Read,
            (_, _) => Access::Write,
        };
        Some((touched.mount.to_string(), access))
    });
    kinds.collect()
}

/// Returns the mount of a path that an argument names, with the access of its role.
fn named_mount(descriptor: &ToolDescriptor, subject: &RequestedSubject) -> Option<(String, Access)> {
    let RequestedSubject::Path { argument, path, access } = subject else { return None };
    let role = descriptor.roles.iter().find(|role| role.argument == *argument);
    let declared = role.and_then(|role| RoleKind::path_access(role.role));
    Some((path.mount()?.to_owned(), declared.map_or(*access, |declared| declared.max(*access))))
}

#[cfg(test)]
mod tests {
    use portcullis_policy::{DEFAULT_POLICY, LoadOptions, PolicySource, ProfileName};
    use portcullis_types::SandboxTier;

    use super::*;

    fn policy() -> WorkspaceSecurityPolicy {
        let operator = PolicySource { name: "p", text: DEFAULT_POLICY };
        let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
        WorkspaceSecurityPolicy::load(&options).expect("loads")
    }

    /// A row of a call with these fields.
    fn row(fields: &str) -> Row {
        let hash = "0".repeat(64);
        let head = r#""v":2,"seq":1,"time":"2026-11-26T12:00:00Z","event":"end","process":"1-1-1""#;
        let line = format!("{{{head},{fields},\"prev\":\"{hash}\",\"hash\":\"{hash}\"}}");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    const READ: &str = r#""tool":"file_read","confinement":"wasm","decision":"allow","outcome":"ok""#;

    /// Returns the reductions of the profile of `file_read` after these rows, as `MOUNT ACCESS`.
    fn reductions(rows: &[String], min_calls: u64) -> Vec<String> {
        let policy = policy();
        let mut usage = MountUsage::new(&policy);
        rows.iter().for_each(|fields| usage.add(&row(fields)));
        let profile = ProfileName::parse("FileReadOnly").expect("a name");
        let found = usage.reductions(profile.as_str(), policy.mounts_of(&profile), min_calls);
        let text = |(mount, left): (GrantedMount, Option<Access>)| {
            format!("{} {}", mount.name, left.map_or("none", Access::as_str))
        };
        found.into_iter().map(text).collect()
    }

    fn touched(mount: &str) -> String {
        format!(
            "{READ},\"touched\":[{{\"mount\":\"{mount}\",\"read\":1,\"written\":0,\"created\":0,\"removed\":0}}]"
        )
    }

    #[test]
    fn mounts_that_no_call_touched_are_taken_away() {
        assert_eq!(reductions(&[touched("shared"), touched("shared")], 2), ["tmp none", "vault none"]);
        assert_eq!(reductions(&[touched("shared"), touched("tmp")], 1), ["vault none"]);
        assert!(reductions(&[touched("shared")], 2).is_empty(), "too few calls");
        assert!(reductions(&[], 0).is_empty(), "no call says nothing");
    }

    #[test]
    fn a_call_that_was_not_observed_leaves_its_profile_alone() {
        let unobserved = format!("{READ},\"touched\":null");
        assert!(reductions(&[touched("shared"), unobserved], 1).is_empty());
        let dead = r#""tool":"file_read","confinement":"wasm","decision":"allow","outcome":"unknown""#;
        assert!(reductions(&[touched("shared"), dead.to_owned()], 1).is_empty());
        let omitted = format!("{},\"omitted\":1,\"profile\":\"FileReadOnly\"", touched("shared"));
        assert!(reductions(&[touched("shared"), omitted], 1).is_empty());
    }

    #[test]
    fn named_paths_and_older_rows_count_as_used() {
        let subject = r#""subjects":[{"argument":"path","kind":"path","value":"/vault/x"}]"#;
        assert_eq!(reductions(&[format!("{},{subject}", touched("shared"))], 1), ["tmp none"]);
        let older = format!("{READ},\"v\":1,\"mounts_used\":[\"tmp\"]").replace("\"v\":1,", "");
        let mut old = row(&older);
        old.v = 1;
        let policy = policy();
        let mut usage = MountUsage::new(&policy);
        usage.add(&old);
        assert_eq!(usage.of("FileReadOnly").mounts["tmp"], (Access::Write, 1));
        assert_eq!(usage.of("FileReadOnly").unobserved, 0);
        let denied = r#""tool":"file_read","confinement":"wasm","decision":"deny","outcome":"denied""#;
        usage.add(&row(denied));
        assert_eq!(usage.of("FileReadOnly").calls, 1);
    }
}
