//! Policy lints that need the file system: who may change the policy file, which folders exist, which modules
//! are approved, which files have hard links elsewhere.

use portcullis_policy::{
    KnownTools, LintCode, LintFinding, LintReport, PolicyProvenance, SourceLocation, WorkspaceSecurityPolicy,
};
use portcullis_types::{RunnerBootstrapEnvelope, ToolName};

use crate::{
    bootstrap::existing_mounts,
    error::BootstrapError,
    modules::Pins,
    policy_files::PolicyFiles,
    sandbox::{hard_links::examine_hard_links, mounts::MountError},
};

/// Lints the texts of a policy. `has_approver` says whether anyone can answer questions. `in_force` also
/// checks the mounts and the approvals of this envelope.
#[must_use]
pub fn lint(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    in_force: bool,
    has_approver: bool,
) -> LintReport {
    let options = files.options(envelope.sandbox_tier);
    let mut report = match WorkspaceSecurityPolicy::load(&options) {
        Ok(policy) => lint_policy(envelope, files, &policy, in_force, has_approver),
        Err(error) => LintReport::of_faults(error),
    };
    if let Some(error) = files.untrusted() {
        let start = SourceLocation::start_of(files.operator_name());
        let message = format!("a start would not obey it: {error}");
        report.add([LintFinding::new(LintCode::WritableByOthers, start, "", message)]);
    }
    report
}

fn lint_policy(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    policy: &WorkspaceSecurityPolicy,
    in_force: bool,
    has_approver: bool,
) -> LintReport {
    let mut known = KnownTools::shipped();
    let pins = if in_force { Pins::read(&envelope.state).ok() } else { None };
    pins.iter().flat_map(Pins::tools).for_each(|tool| known.add(tool));
    if policy.modules_dir().is_some() {
        // The modules are not queried for their tools, so an unknown name that resembles no known one may
        // belong to a module.
        known.add_unreadable();
    }
    let options = files.options(envelope.sandbox_tier);
    let provenance = PolicyProvenance::read(&options);
    let mut report = LintReport::of_policy(&options, policy, &provenance, &known, has_approver);
    if let Some(pins) = &pins {
        let is_unknown = |key: &str| {
            report.findings.iter().any(|finding| finding.code == LintCode::NoTool && finding.key == key)
        };
        let unpinned = unpinned(policy, pins, &provenance).into_iter();
        report.add(unpinned.filter(|finding| !is_unknown(&finding.key)).collect::<Vec<_>>());
    }
    if in_force {
        report.add(folders(envelope, files, policy, &provenance));
    }
    report
}

/// Finds entries that give rights to tools which are neither shipped nor approved.
fn unpinned(
    policy: &WorkspaceSecurityPolicy,
    pins: &Pins,
    provenance: &PolicyProvenance,
) -> Vec<LintFinding> {
    let is_shipped = |name: &str| portcullis_policy::shipped_names().any(|shipped| shipped == name);
    let is_pinned = |name: &ToolName| pins.pin(name).is_some();
    policy
        .tools_with_entries()
        .filter(|name| !is_shipped(name.as_str()) && !is_pinned(name))
        .map(|name| {
            let key = format!("tools.{name}");
            let message = format!("any module that declares `{name}` gets this entry's power");
            LintFinding::new(LintCode::NotPinned, provenance.location_or_start(&key), key, message)
        })
        .collect()
}

/// Finds mounts whose folders are missing, and mounts with files that have hard links elsewhere.
fn folders(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    policy: &WorkspaceSecurityPolicy,
    provenance: &PolicyProvenance,
) -> Vec<LintFinding> {
    let (mounts, missing) = existing_mounts(envelope, files, policy);
    let mut findings: Vec<LintFinding> = missing
        .iter()
        .map(|mount| {
            let key = format!("mounts.{}", mount.name);
            let (code, message) = if mount.is_absolute() {
(
                    LintCode::Fault,
                    format!(
                        "`{}` does not exist, and only a folder below the workspace is made by a start; make it, or correct the path",
                        mount.folder
                    ),
                )
} else {
(
                    LintCode::FolderMissing,
                    format!("`{}` does not exist; the first start makes it", mount.folder),
                )
};
            LintFinding::new(code, provenance.location_or_start(&key), key, message)
        })
        .collect();
    let of_mounts = match mounts {
        Ok(mounts) => {
            let links = examine_hard_links(&mounts);
            // A link to a private file is the more serious finding, so it comes first.
            let first = links.private_files.first().or_else(|| links.shared_files.first());
            let message = |first| format!("`{first}` has further names (hard links)");
            first.map(|first| (LintCode::HardLinks, "mounts".to_owned(), message(first)))
        }
        Err(error) => Some((LintCode::Fault, key_of(&error), portcullis_types::error_chain(&error))),
    };
    findings.extend(of_mounts.map(|(code, key, message)| {
        LintFinding::new(code, provenance.location_or_start(&key), key, message)
    }));
    findings
}

/// Returns the key of the mount that cannot be opened, or `mounts`.
fn key_of(error: &BootstrapError) -> String {
    match error {
        BootstrapError::Mount(
            MountError::Open { mount, .. }
            | MountError::OpenAbsolute { mount, .. }
            | MountError::Kernel { mount, .. },
        ) => format!("mounts.{mount}"),
        _ => "mounts".to_owned(),
    }
}
