//! `portcullis policy diff`: shows how two policies differ in their effect.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use portcullis_tools::{
    PolicyFiles, ReplayReport,
    audit::{self, POLICIES_DIR},
    policy::{EffectChange, PolicyDiff, WorkspaceSecurityPolicy},
};
use serde::Serialize;

use crate::{
    cli::{CommonOptions, DiffOptions},
    command::audit::{RowFilter, replay_log, replay_text},
    error::CliError,
    output::{json, stream, table},
    setup,
};

/// The name of the shipped policy on the command line.
const SHIPPED: &str = "default";

#[derive(Debug, Serialize)]
struct DiffJson<'a> {
    #[serde(flatten)]
    diff: &'a PolicyDiff,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<&'a ReplayReport>,
}

/// Compares two policies. The exit code is 1 if the new policy may allow a call that the old one does not.
pub(crate) fn diff(common: &CommonOptions, options: &DiffOptions) -> Result<ExitCode, CliError> {
    let (old, new) = (load(common, &options.old)?, load(common, &options.new)?);
    let diff = PolicyDiff::between(&old, &new, &[]);
    let replay = if options.log {
        let log = audit::log_path(&setup::envelope(common)?.state);
        Some(replay_log(&log, &new, common.sandbox_tier, &RowFilter::default())?)
    } else {
        None
    };
    if options.json {
        json::write_output(&DiffJson { diff: &diff, replay: replay.as_ref() })?;
    } else {
        let replay_part = replay.as_ref().map(replay_text).unwrap_or_default();
        stream::write_output(&format!("{}{replay_part}", diff_text(&diff)))?;
    }
    let is_wider = diff.is_wider() || replay.is_some_and(|replay| replay.is_wider());
    Ok(if is_wider { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Loads a policy by its file, by `default`, or by the digest that rows have, which may be shortened.
fn load(common: &CommonOptions, name: &str) -> Result<WorkspaceSecurityPolicy, CliError> {
    let files = match name {
        SHIPPED => PolicyFiles::shipped(),
        _ => match kept_policy(common, name)? {
            Some(path) => PolicyFiles::read(&path)?,
            None => PolicyFiles::read(Path::new(name))?,
        },
    };
    Ok(files.load(common.sandbox_tier)?)
}

/// Returns the file of a kept policy whose digest begins with this text. `None` if the text cannot be the
/// beginning of a digest, or names a file.
fn kept_policy(common: &CommonOptions, start: &str) -> Result<Option<PathBuf>, CliError> {
    let is_digest = start.len() >= SHORTEST_DIGEST && start.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest || Path::new(start).exists() {
        return Ok(None);
    }
    let folder = setup::envelope(common)?.state.join(POLICIES_DIR);
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names = entries.filter_map(|name| name.into_string().ok());
    let mut found: Vec<String> =
        names.filter(|name| name.starts_with(start) && name.ends_with(".toml")).collect();
    match (found.pop(), found.is_empty()) {
        (Some(name), true) => Ok(Some(folder.join(name))),
        (first, _) => {
            let count = found.len() + usize::from(first.is_some());
            Err(CliError::KeptPolicy { start: start.to_owned(), count })
        }
    }
}

/// The minimum length of the beginning of a digest that names a kept policy: 8 characters.
const SHORTEST_DIGEST: usize = 8;

fn diff_text(diff: &PolicyDiff) -> String {
    if diff.changes.is_empty() && diff.without_effect.is_empty() {
        return "the same meaning\n".to_owned();
    }
    let mut out = String::new();
    if !diff.changes.is_empty() {
        let rows = diff.changes.iter().map(|change| {
            let EffectChange { direction, subject, aspect, old, new, rule } = change;
            let subject_aspect =
                if aspect.is_empty() { subject.clone() } else { format!("{subject}: {aspect}") };
            [direction.as_str().to_uppercase(), subject_aspect, old.clone(), new.clone(), rule.clone()]
        });
        out = table::render(["", "WHAT", "OLD", "NEW", "RULE"], rows);
    }
    for section in &diff.without_effect {
        out.push_str(&format!("[{section}] differs, without effect on the tools that are known\n"));
    }
    out
}
