//! `portcullis audit replay`: decides the recorded calls again, under another policy.

use std::{
    collections::HashMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use portcullis_tools::{
    ChangedVerdict, PolicyFiles, Replay, ReplayReport,
    audit::{self, POLICIES_DIR},
    policy::{Approval, WorkspaceSecurityPolicy},
};
use portcullis_types::SandboxTier;

use super::{each_row, filter::RowFilter, path};
use crate::{
    cli::{CommonOptions, ReplayOptions},
    error::CliError,
    output::{json, stream, table},
};

/// Replays the calls of the log that match the filters under the policy in force, or under that of
/// `--policy`.
pub(crate) fn replay(common: &CommonOptions, options: ReplayOptions) -> Result<ExitCode, CliError> {
    let envelope = crate::setup::envelope(common)?;
    let policy = crate::setup::policy_files(&envelope)?.load(envelope.sandbox_tier)?;
    let report =
        replay_log(&path(common)?, &policy, envelope.sandbox_tier, &RowFilter::new(options.filter)?)?;
    if options.json {
        json::write_output(&report)?;
    } else {
        stream::write_output(&replay_text(&report))?;
    }
    Ok(if report.is_wider() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Replays a log row by row. Without a log there are no calls.
pub(crate) fn replay_log(
    log: &Path,
    policy: &WorkspaceSecurityPolicy,
    tier: SandboxTier,
    filter: &RowFilter,
) -> Result<ReplayReport, CliError> {
    let mut kept = KeptPolicies { folder: log.with_file_name(POLICIES_DIR), tier, loaded: HashMap::new() };
    let mut replay = Replay::new(policy);
    each_row(log, |row| {
        if filter.matches(&row) {
            let before = row.policy_digest.as_deref().and_then(|digest| kept.get(digest));
            replay.add(&row, before);
        }
    })?;
    Ok(replay.into_report())
}

/// The policies that were in force, by their digests.
struct KeptPolicies {
    folder: PathBuf,
    tier: SandboxTier,
    loaded: HashMap<String, Option<WorkspaceSecurityPolicy>>,
}

impl KeptPolicies {
    /// Returns a kept policy, or `None` if it was not kept or this version cannot read it.
    fn get(&mut self, digest: &str) -> Option<&WorkspaceSecurityPolicy> {
        if !self.loaded.contains_key(digest) {
            let load = || {
                let files = PolicyFiles::read(&self.folder.join(format!("{digest}.toml"))).ok()?;
                files.load(self.tier).ok()
            };
            let policy = if audit::is_sha256(digest) { load() } else { None };
            self.loaded.insert(digest.to_owned(), policy);
        }
        self.loaded.get(digest)?.as_ref()
    }
}

/// Formats the numbers, then the calls whose decision differs, first those that would be allowed more.
pub(crate) fn replay_text(report: &ReplayReport) -> String {
    let ReplayReport { calls, same, undecided, changed } = report;
    let mut out = format!("{calls} calls: {same} same, {} decided differently", calls - same);
    // Writing to a string cannot fail.
    if *undecided > 0 {
        let _ = write!(out, "; {undecided} could not be replayed");
    }
    out.push('\n');
    if changed.is_empty() {
        return out;
    }
    let mut groups: Vec<(&ChangedVerdict, &u64)> = changed.iter().collect();
    groups.sort_by_key(|(group, count)| (group.would >= group.was, std::cmp::Reverse(**count)));
    let word = |verdict: Approval| verdict.to_string();
    let rows = groups.into_iter().map(|(group, count)| {
        let direction = if group.would < group.was { "wider" } else { "narrower" };
        [
            direction.to_owned(),
            count.to_string(),
            group.tool.clone(),
            word(group.was),
            word(group.would),
            group.rule.clone(),
        ]
    });
    out + &table::render(["", "CALLS", "TOOL", "WAS", "WOULD", "RULE"], rows)
}
