//! `portcullis policy tighten`: writes an overlay that takes away grants that no recorded call used, with its
//! proofs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs::OpenOptions,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use jiff::Timestamp;
use portcullis_tools::{
    MountUsage, PolicyFiles, ProfileUse, Replay, ReplayReport,
    audit::{self, Row},
    policy::{
        Direction, GrantedMount, MountName, PolicyDiff, ProfileName, ToolDescriptor, WorkspaceSecurityPolicy,
    },
};
use portcullis_types::Access;
use toml_edit::{DocumentMut, InlineTable, Item, Table, value};

use crate::{
    cli::{CommonOptions, FilterOptions, TightenOptions},
    command::audit::{RowFilter, each_row},
    error::CliError,
    output::{stream, text},
    setup,
};

/// Prints or writes the overlay.
pub(crate) fn tighten(common: &CommonOptions, options: TightenOptions) -> Result<ExitCode, CliError> {
    let TightenOptions { since, min_calls, out } = options;
    let envelope = setup::envelope(common)?;
    let files = setup::policy_files(&envelope)?;
    let policy = files.load(envelope.sandbox_tier)?;
    let filter = RowFilter::new(FilterOptions { since: Some(since.clone()), ..FilterOptions::default() })?;
    let log = FilteredLog { path: audit::log_path(&envelope.state), filter };
    let mut usage = MountUsage::new(&policy);
    let mut period = Period::default();
    log.for_each_row(|row| {
        period.add(row);
        usage.add(row);
    })?;
    let mut plan = Plan::new(&policy, &usage, min_calls);
    let (text, diff, replay) = loop {
        let text = plan.overlay(&files)?;
        let new = files.clone().with_overlay_text(text.clone()).load(envelope.sandbox_tier)?;
        let diff = PolicyDiff::between(&policy, &new, &[]);
        let replay = log.replay(&policy, &new)?;
        if !plan.withdraw(&diff, &replay) {
            break (text, diff, replay);
        }
    };
    let overlay = format!("{}\n{text}", comments(&plan, &usage, &period, &since, &diff, &replay));
    // Load the whole text once more, because this text is the one that will be used.
    files.with_overlay_text(overlay.clone()).load(envelope.sandbox_tier)?;
    match out {
        Some(path) => {
            write_new(&path, &overlay).map_err(|source| CliError::Write { path: path.clone(), source })?;
        }
        None => stream::write_output(&overlay)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a file that must not exist.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

/// The rows that count.
struct FilteredLog {
    path: std::path::PathBuf,
    filter: RowFilter,
}

impl FilteredLog {
    fn for_each_row(&self, mut use_row: impl FnMut(&Row)) -> Result<(), CliError> {
        each_row(&self.path, |row| {
            if self.filter.matches(&row) {
                use_row(&row);
            }
        })
    }

    /// Decides the calls under both policies.
    fn replay(
        &self,
        old: &WorkspaceSecurityPolicy,
        new: &WorkspaceSecurityPolicy,
    ) -> Result<ReplayReport, CliError> {
        let mut replay = Replay::new(new);
        self.for_each_row(|row| replay.add(row, Some(old)))?;
        Ok(replay.into_report())
    }
}

/// The times and agents of the calls.
#[derive(Debug, Default)]
struct Period {
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    agents: BTreeSet<String>,
}

impl Period {
    fn add(&mut self, row: &Row) {
        self.first = self.first.or(Some(row.time));
        self.last = Some(row.time);
        // The set is bounded by the log. Only its size is shown.
        self.agents.extend(row.agent.as_deref().map(str::to_owned));
    }
}

/// The reductions, by profile.
struct Plan<'p> {
    policy: &'p WorkspaceSecurityPolicy,
    min_calls: u64,
    reductions: BTreeMap<ProfileName, Vec<(GrantedMount, Option<Access>)>>,
    /// The profiles whose reductions were withdrawn, because a call would be decided differently.
    withdrawn: BTreeSet<ProfileName>,
}

impl<'p> Plan<'p> {
    fn new(policy: &'p WorkspaceSecurityPolicy, usage: &MountUsage<'_>, min_calls: u64) -> Self {
        let reductions = policy.profiles().map(|(profile, granted)| {
            (profile.clone(), usage.reductions(profile.as_str(), granted, min_calls))
        });
        let reductions = reductions.filter(|(_, reductions)| !reductions.is_empty()).collect();
        Self { policy, min_calls, reductions, withdrawn: BTreeSet::new() }
    }

    /// Returns the overlay of the workspace with the reductions, as a document.
    fn overlay(&self, files: &PolicyFiles) -> Result<String, CliError> {
        // The overlay has loaded, so it is valid TOML.
        let mut document: DocumentMut = files
            .overlay_text()
            .unwrap_or_default()
            .parse()
            .map_err(|source| CliError::Overlay { source })?;
        if self.reductions.is_empty() {
            return Ok(document.to_string());
        }
        let profiles = document.entry("profiles").or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        for (profile, reductions) in &self.reductions {
            let Some(profiles) = profiles.as_table_like_mut() else { continue };
            let own_profile = profiles.entry(profile.as_str()).or_insert_with(toml_edit::table);
            let Some(own_profile) = own_profile.as_table_like_mut() else { continue };
            let mounts = own_profile.entry("mounts").or_insert_with(|| value(InlineTable::new()));
            let Some(mounts) = mounts.as_table_like_mut() else { continue };
            for (mount, left) in reductions {
                mounts.insert(mount.name.as_str(), value(access_label(*left)));
            }
        }
        Ok(document.to_string())
    }

    /// Withdraws the reductions of profiles whose tools would get more, or whose calls would be decided
    /// differently. An example is a flow rule that asks about writes to a mount that would no longer be
    /// writable. Returns `false` if nothing has to be withdrawn.
    fn withdraw(&mut self, diff: &PolicyDiff, replay: &ReplayReport) -> bool {
        let of_diff = diff.changes.iter().filter(|change| change.direction != Direction::Narrower);
        let tools: BTreeSet<&str> = of_diff
            .map(|change| change.subject.as_str())
            .chain(replay.changed.keys().map(|group| group.tool.as_str()))
            .collect();
        if tools.is_empty() || self.reductions.is_empty() {
            return false;
        }
        let of_tools: BTreeSet<ProfileName> = self
            .policy
            .offered_tools()
            .chain(self.policy.tools_with_entries().map(descriptor_of_entry))
            .filter(|descriptor| tools.contains(descriptor.name.as_str()))
            .map(|descriptor| self.policy.describe(&descriptor).profile)
            .filter(|profile| self.reductions.contains_key(profile))
            .collect();
        // If no profile can be identified, withdraw all of them.
        let all = || self.reductions.keys().cloned().collect();
        for profile in if of_tools.is_empty() { all() } else { of_tools } {
            self.reductions.remove(&profile);
            self.withdrawn.insert(profile);
        }
        true
    }
}

fn descriptor_of_entry(name: &portcullis_types::ToolName) -> ToolDescriptor {
    ToolDescriptor::undeclared(name.clone(), portcullis_tools::policy::ToolOrigin::ForeignModule)
}

fn access_label(access: Option<Access>) -> &'static str {
    access.map_or("none", Access::as_str)
}

/// Formats the numbers, the proofs and the limits as comments.
fn comments(
    plan: &Plan<'_>,
    usage: &MountUsage<'_>,
    period: &Period,
    since: &str,
    diff: &PolicyDiff,
    replay: &ReplayReport,
) -> String {
    let mut lines = vec![
        "Written by `portcullis policy tighten`. An overlay only takes away. Read it before you use it."
            .to_owned(),
    ];
    let time = |time: Option<Timestamp>| time.map_or_else(|| "–".to_owned(), |time| format!("{time:.0}"));
    lines.push(format!(
        "Rows since {since}: {} to {}, of {} agents.",
        time(period.first),
        time(period.last),
        period.agents.len()
    ));
    lines.push(String::new());
    for (profile, granted) in plan.policy.profiles().filter(|(_, granted)| !granted.is_empty()) {
        lines.extend(profile_lines(plan, profile, granted, &usage.of(profile.as_str())));
    }
    lines.push(String::new());
    lines.push(format!("Proof 1, `policy diff`: {} differences, all NARROWER.", diff.changes.len()));
    lines.extend(diff.changes.iter().map(|change| {
        format!("  NARROWER {}: {} {} → {}", change.subject, change.aspect, change.old, change.new)
    }));
    lines.push(format!(
        "Proof 2, replay of these rows: {} calls, {} decided differently{}.",
        replay.calls,
        replay.calls - replay.same,
        match replay.undecided {
            0 => String::new(),
            count => format!("; {count} could not be replayed"),
        }
    ));
    lines.push(String::new());
    lines.extend(LIMITS.map(str::to_owned));
    let mut out = String::new();
    for line in lines {
        // Writing to a string cannot fail. A name in a comment must not end the comment.
        let _ = writeln!(out, "{}", format!("# {}", text::inline(&line)).trim_end());
    }
    out
}

/// The limits of a replay.
const LIMITS: [&str; 4] = [
    "Limits: a call that comes once a year is in no log of a month, and is refused after this.",
    "Links were not followed, and answers of persons do not count.",
    "The mounts of [shell] are left alone: the accesses of a command are not observed.",
    "Calls of a tool that has moved to another profile count for the profile that it has now.",
];

/// Formats the findings about one profile.
fn profile_lines(
    plan: &Plan<'_>,
    profile: &ProfileName,
    granted: &[GrantedMount],
    used: &ProfileUse,
) -> Vec<String> {
    let ProfileUse { calls, unobserved, mounts, .. } = used;
    let left_alone = |reason: String| vec![format!("{profile}: left alone. {reason}")];
    // A call whose accesses are unknown may have used every mount.
    if *unobserved > 0 {
        return left_alone(format!("The accesses of {unobserved} of {calls} calls are not known."));
    }
    if *calls < plan.min_calls.max(1) {
        return left_alone(format!("{calls} calls are fewer than {}.", plan.min_calls.max(1)));
    }
    // `plan` has replayed the recorded calls under the smaller profile.
    if plan.withdrawn.contains(profile) {
        return left_alone("With less, a recorded call would be decided differently.".to_owned());
    }
    let mut lines = Vec::new();
    for mount in granted {
        let name: &MountName = &mount.name;
        let line = match mounts.get(name.as_str()) {
            None => format!("none. 0 of {calls} calls used it."),
            Some((strongest, count)) if *strongest < mount.access => {
                format!("{strongest}. {count} of {calls} calls used it, none wrote.")
            }
            Some((_, count)) => format!("kept. {count} of {calls} calls used it."),
        };
        lines.push(format!("{profile}: /{name} {} → {line}", mount.access));
    }
    let has_profile = |descriptor: &ToolDescriptor| plan.policy.describe(descriptor).profile == *profile;
    let idle: Vec<String> = plan
        .policy
        .offered_tools()
        .filter(has_profile)
        .map(|descriptor| descriptor.name.to_string())
        .filter(|name| !used.tools.contains(name))
        .collect();
    if !idle.is_empty() {
        lines.push(format!("{profile}: never called: {}", idle.join(", ")));
    }
    lines
}
