//! Finds policy lines that would allow a refused call. The lines are shown only if the policy's own evaluator
//! allows the call under a policy that contains them.

use portcullis_tools::{
    PolicyFiles,
    policy::{
        Approval, CallRequest, DenialCode, GrantedMount, HostRule, ProfileName, RequestedSubject, RunContext,
        ToolDescriptor, WorkspaceSecurityPolicy,
    },
};
use portcullis_types::{Access, SandboxTier};

use super::entry::{self, EntryKey};

/// The maximum number of profiles that are tried. Only a generated policy has more.
const MAX_PROFILES: usize = 64;

/// Policy lines that would allow a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AllowLines {
    /// The header of the section that the lines belong to.
    pub(super) section: String,
    /// Whether the policy already has the section. If it does, only the lines must be added.
    pub(super) section_exists: bool,
    pub(super) lines: Vec<String>,
    /// The whole section, for a policy that does not have it.
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RefusedCall<'a> {
    pub(super) tool: &'a ToolDescriptor,
    pub(super) subjects: &'a [RequestedSubject],
}

/// Returns the smallest entry that would allow the call without a question, or `None` if no entry would.
pub(super) fn lines(files: &PolicyFiles, tier: SandboxTier, refused: RefusedCall<'_>) -> Option<AllowLines> {
    let policy = files.load(tier).ok()?;
    candidates(&policy).into_iter().find_map(|keys| {
        let edited = entry::set_keys(files.operator_text(), &refused.tool.name, &keys);
        let policy = files.clone().with_operator_text(edited.text).load(tier).ok()?;
        allows(&policy, refused)
            .then(|| AllowLines::new(("tools", refused.tool.name.as_str()), edited.section_exists, &keys))
    })
}

/// Returns the lines that would let the call's requests reach their hosts. They add the hosts to the tool's
/// profile if that helps, otherwise to a new profile for only this tool. `None` if neither helps.
pub(super) fn host_lines(
    files: &PolicyFiles,
    tier: SandboxTier,
    refused: RefusedCall<'_>,
) -> Option<Vec<AllowLines>> {
    let policy = files.load(tier).ok()?;
    let tool = refused.tool.name.as_str();
    let own_profile = policy.describe(refused.tool).profile;
    let hosts = |profile: &ProfileName| {
        let granted = policy.network_of(profile).into_iter().flat_map(|network| &network.hosts);
        let mut hosts: Vec<String> = granted.map(HostRule::to_string).collect();
        hosts.extend(refused.subjects.iter().filter_map(host_of).map(|rule| rule.to_string()));
        let hosts: Vec<String> = hosts.iter().map(|host| entry::toml_string(host)).collect();
        vec![("hosts", format!("[{}]", hosts.join(", ")))]
    };
    let tables_in_own_profile = vec![(("profiles", own_profile.as_str()), hosts(&own_profile))];
    let tables_in_new_profile = vec![
        (("profiles", tool), hosts(&ProfileName::nothing())),
        (("tools", tool), vec![("profile", entry::toml_string(tool))]),
    ];
    [tables_in_own_profile, tables_in_new_profile].into_iter().find_map(|tables| {
        let mut text = files.operator_text().to_owned();
        let mut lines = Vec::new();
        for (table, keys) in &tables {
            let edited = entry::set_table_keys(&text, *table, keys);
            lines.push(AllowLines::new(*table, edited.section_exists, keys));
            text = edited.text;
        }
        let policy = files.clone().with_operator_text(text).load(tier).ok()?;
        let request =
            CallRequest { tool: refused.tool, subjects: refused.subjects, run: &RunContext::default() };
        // Only the host matters here. Treat an approval that is still needed, and an address that is not
        // public, as allowed.
        let is_granted = match policy.authorize(&request) {
            Ok(_) => true,
            Err(denial) => denial.code == DenialCode::AddressNotPublic,
        };
        is_granted.then_some(lines)
    })
}

/// Returns the rule for the host of an address.
fn host_of(subject: &RequestedSubject) -> Option<HostRule> {
    let RequestedSubject::Url { url, .. } = subject else { return None };
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    format!("{scheme}://{authority}").parse().ok()
}

impl AllowLines {
    fn new((table, name): (&str, &str), section_exists: bool, keys: &[EntryKey]) -> Self {
        Self {
            section: format!("[{table}.{name}]"),
            section_exists,
            lines: keys.iter().map(|(name, value)| format!("{name} = {value}")).collect(),
            text: entry::section((table, name), keys),
        }
    }
}

fn allows(policy: &WorkspaceSecurityPolicy, refused: RefusedCall<'_>) -> bool {
    let request = CallRequest { tool: refused.tool, subjects: refused.subjects, run: &RunContext::default() };
    policy.authorize(&request).is_ok_and(|grant| grant.approval == Approval::Allow)
}

/// Returns candidate entries, smallest first: fewer keys come before more keys, and profiles that grant less
/// come before profiles that grant more.
fn candidates(policy: &WorkspaceSecurityPolicy) -> Vec<Vec<EntryKey>> {
    let mut profiles: Vec<(&ProfileName, &[GrantedMount])> = policy.profiles().collect();
    profiles.sort_by_key(|(name, mounts)| {
        let writes = mounts.iter().filter(|mount| mount.access == Access::Write).count();
        (writes, mounts.len(), name.as_str())
    });
    profiles.truncate(MAX_PROFILES);
    let profile = |name: &ProfileName| ("profile", entry::toml_string(name.as_str()));
    let approval = || ("approval", entry::toml_string(Approval::Allow.as_str()));
    let enabled = || ("enabled", "true".to_owned());
    let mut candidates = vec![vec![approval()], vec![enabled()]];
    candidates.extend(profiles.iter().map(|(name, _)| vec![profile(name)]));
    candidates.extend(profiles.iter().map(|(name, _)| vec![profile(name), approval()]));
    candidates.push(vec![approval(), enabled()]);
    candidates.extend(profiles.iter().map(|(name, _)| vec![profile(name), enabled()]));
    candidates.extend(profiles.iter().map(|(name, _)| vec![profile(name), approval(), enabled()]));
    candidates
}
