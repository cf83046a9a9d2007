//! Which lines of a policy would allow a call that it refuses. Lines are shown only after the policy was
//! evaluated with them in place, by the evaluator that decides on calls.

use portcullis_tools::{
    PolicyFiles,
    policy::{
        Approval, CallRequest, GrantedMount, ProfileName, RequestedSubject, ToolFacts,
        WorkspaceSecurityPolicy,
    },
};
use portcullis_types::{Access, SandboxTier};

use super::entry::{self, Key};

/// Profiles that are tried. A policy with more has been written by a program.
const MAX_PROFILES: usize = 64;

/// Lines that would allow a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lines {
    /// The entry that they belong into.
    pub(super) section: String,
    /// Whether the policy has the entry; then only the lines are to be written into it.
    pub(super) is_there: bool,
    /// Each a line.
    pub(super) lines: Vec<String>,
    /// The whole, as it is pasted where there is no entry yet.
    pub(super) text: String,
}

/// A call that was refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused<'a> {
    pub(super) tool: &'a ToolFacts,
    pub(super) subjects: &'a [RequestedSubject],
}

/// The least that would allow the call without a question; none if no entry of the tool would.
pub(super) fn lines(files: &PolicyFiles, tier: SandboxTier, refused: Refused<'_>) -> Option<Lines> {
    let policy = files.load(tier).ok()?;
    candidates(&policy).into_iter().find_map(|keys| {
        let edited = entry::put(files.operator_text(), &refused.tool.name, &keys);
        let policy = files.clone().with_operator_text(edited.text).load(tier).ok()?;
        allows(&policy, refused).then(|| Lines {
            section: format!("[tools.{}]", refused.tool.name),
            is_there: edited.is_there,
            lines: keys.iter().map(|(name, value)| format!("{name} = {value}")).collect(),
            text: entry::section(&refused.tool.name, &keys),
        })
    })
}

fn allows(policy: &WorkspaceSecurityPolicy, refused: Refused<'_>) -> bool {
    let request = CallRequest { tool: refused.tool, subjects: refused.subjects };
    policy.authorize(&request).is_ok_and(|grant| grant.approval == Approval::Allow)
}

/// What an entry may say, least first: few keys before many, and of profiles those that give less before
/// those that give more.
fn candidates(policy: &WorkspaceSecurityPolicy) -> Vec<Vec<Key>> {
    let mut profiles: Vec<(&ProfileName, &[GrantedMount])> = policy.profiles().collect();
    profiles.sort_by_key(|(name, mounts)| {
        let writes = mounts.iter().filter(|mount| mount.access == Access::Write).count();
        (writes, mounts.len(), name.as_str())
    });
    profiles.truncate(MAX_PROFILES);
    let profile = |name: &ProfileName| ("profile", entry::quoted(name.as_str()));
    let approval = || ("approval", entry::quoted(Approval::Allow.as_str()));
    let enabled = || ("enabled", "true".to_owned());
    let mut candidates = vec![vec![approval()], vec![enabled()]];
    candidates.extend(profiles.iter().map(|(name, _)| vec![profile(name)]));
    candidates.extend(profiles.iter().map(|(name, _)| vec![profile(name), approval()]));
    candidates.push(vec![approval(), enabled()]);
    candidates.extend(profiles.iter().map(|(name, _)| vec![profile(name), enabled()]));
    candidates.extend(profiles.iter().map(|(name, _)| vec![profile(name), approval(), enabled()]));
    candidates
}
