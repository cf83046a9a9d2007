//! Lines of a policy that would allow a refused call. They are shown only after the policy was evaluated with
//! them, by the same evaluator that decides on calls.

use portcullis_tools::{
    PolicyFiles,
    policy::{
        Approval, CallRequest, GrantedMount, ProfileName, RequestedSubject, RunFacts, ToolFacts,
        WorkspaceSecurityPolicy,
    },
};
use portcullis_types::{Access, SandboxTier};

use super::entry::{self, EntryKey};

/// The most profiles that are tried. A policy with more is generated.
const MAX_PROFILES: usize = 64;

/// Policy lines that would allow a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AllowLines {
    /// The header of the entry that they belong to.
    pub(super) section: String,
    /// Whether the policy has the entry. Only the lines must be added then.
    pub(super) is_there: bool,
    /// The lines.
    pub(super) lines: Vec<String>,
    /// The whole entry, for a policy without it.
    pub(super) text: String,
}

/// A refused call.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefusedCall<'a> {
    pub(super) tool: &'a ToolFacts,
    pub(super) subjects: &'a [RequestedSubject],
}

/// The smallest entry that would allow the call without a question; none if no entry would.
pub(super) fn lines(files: &PolicyFiles, tier: SandboxTier, refused: RefusedCall<'_>) -> Option<AllowLines> {
    let policy = files.load(tier).ok()?;
    candidates(&policy).into_iter().find_map(|keys| {
        let edited = entry::put(files.operator_text(), &refused.tool.name, &keys);
        let policy = files.clone().with_operator_text(edited.text).load(tier).ok()?;
        allows(&policy, refused).then(|| AllowLines {
            section: format!("[tools.{}]", refused.tool.name),
            is_there: edited.is_there,
            lines: keys.iter().map(|(name, value)| format!("{name} = {value}")).collect(),
            text: entry::section(&refused.tool.name, &keys),
        })
    })
}

fn allows(policy: &WorkspaceSecurityPolicy, refused: RefusedCall<'_>) -> bool {
    let request = CallRequest { tool: refused.tool, subjects: refused.subjects, run: &RunFacts::default() };
    policy.authorize(&request).is_ok_and(|grant| grant.approval == Approval::Allow)
}

/// Candidate entries, the least first: few keys before many, and profiles that grant less before those that
/// grant more.
fn candidates(policy: &WorkspaceSecurityPolicy) -> Vec<Vec<EntryKey>> {
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
