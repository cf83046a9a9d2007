//! Lines of a policy that would allow a refused call. They are shown only after the policy was evaluated with
//! them, by the same evaluator that decides on calls.

use portcullis_tools::{
    PolicyFiles,
    policy::{
        Approval, CallRequest, DenialCode, GrantedMount, HostRule, ProfileName, RequestedSubject, RunFacts,
        ToolFacts, WorkspaceSecurityPolicy,
    },
};
use portcullis_types::{Access, SandboxTier};

use super::entry::{self, EntryKey};

/// The most profiles that are tried. A policy with more is generated.
const MAX_PROFILES: usize = 64;

/// Policy lines that would allow a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AllowLines {
    /// The header of the section that they belong to.
    pub(super) section: String,
    /// Whether the policy has the section. Only the lines must be added then.
    pub(super) is_there: bool,
    /// The lines.
    pub(super) lines: Vec<String>,
    /// The whole section, for a policy without it.
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
        allows(&policy, refused)
            .then(|| AllowLines::of(("tools", refused.tool.name.as_str()), edited.is_there, &keys))
    })
}

/// The lines that would let the call's requests reach its addresses: the host in the tool's profile where that may have
/// hosts, else in a profile of the tool's own. None if no such lines would.
pub(super) fn host_lines(
    files: &PolicyFiles,
    tier: SandboxTier,
    refused: RefusedCall<'_>,
) -> Option<Vec<AllowLines>> {
    let policy = files.load(tier).ok()?;
    let tool = refused.tool.name.as_str();
    let own = policy.describe(refused.tool).profile;
    let hosts = |profile: &ProfileName| {
        let granted = policy.network_of(profile).into_iter().flat_map(|network| &network.hosts);
        let mut hosts: Vec<String> = granted.map(HostRule::to_string).collect();
        hosts.extend(refused.subjects.iter().filter_map(host_of).map(|rule| rule.to_string()));
        let hosts: Vec<String> = hosts.iter().map(|host| entry::quoted(host)).collect();
        vec![("hosts", format!("[{}]", hosts.join(", ")))]
    };
    let in_its_profile = vec![(("profiles", own.as_str()), hosts(&own))];
    let in_one_of_its_own = vec![
        (("profiles", tool), hosts(&ProfileName::nothing())),
        (("tools", tool), vec![("profile", entry::quoted(tool))]),
    ];
    [in_its_profile, in_one_of_its_own].into_iter().find_map(|tables| {
        let mut text = files.operator_text().to_owned();
        let mut lines = Vec::new();
        for (table, keys) in &tables {
            let edited = entry::put_into(&text, *table, keys);
            lines.push(AllowLines::of(*table, edited.is_there, keys));
            text = edited.text;
        }
        let policy = files.clone().with_operator_text(text).load(tier).ok()?;
        let request =
            CallRequest { tool: refused.tool, subjects: refused.subjects, run: &RunFacts::default() };
        // Whether the call is asked about is another matter, and so is an address that is not public: it was refused for
        // its host.
        let is_granted = match policy.authorize(&request) {
            Ok(_) => true,
            Err(denial) => denial.code == DenialCode::AddressNotPublic,
        };
        is_granted.then_some(lines)
    })
}

/// The rule for the host of an address.
fn host_of(subject: &RequestedSubject) -> Option<HostRule> {
    let RequestedSubject::Url { url, .. } = subject else { return None };
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    format!("{scheme}://{authority}").parse().ok()
}

impl AllowLines {
    fn of((table, name): (&str, &str), is_there: bool, keys: &[EntryKey]) -> Self {
        Self {
            section: format!("[{table}.{name}]"),
            is_there,
            lines: keys.iter().map(|(name, value)| format!("{name} = {value}")).collect(),
            text: entry::section((table, name), keys),
        }
    }
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
