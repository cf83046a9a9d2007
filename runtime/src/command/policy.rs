//! `portcullis policy`: prints the shipped policy, and checks a policy and shows its grants.

mod diff;
mod lint;
mod sarif;
mod show;
mod test;
mod tighten;

pub(crate) use diff::diff;
pub(crate) use lint::lint;
pub(crate) use show::show;
pub(crate) use test::test;
pub(crate) use tighten::tighten;

use std::{fmt::Write as _, path::Path, process::ExitCode};

use portcullis_tools::{
    BootstrapError, PolicyFiles,
    policy::{DEFAULT_POLICY, KnownTools, PolicyFault, SandboxSection, WorkspaceSecurityPolicy},
};

use super::tools;
use crate::{
    cli::{CommonOptions, ModuleOptions},
    error::CliError,
    output::{stream, table, text},
    setup, sidecar,
};

/// Prints the shipped policy.
pub(crate) fn default() -> Result<ExitCode, CliError> {
    stream::write_output(DEFAULT_POLICY)?;
    Ok(ExitCode::SUCCESS)
}

/// Checks a single file. A file that other users can change gives a warning instead of an error, because it
/// is only shown and not enforced.
pub(crate) fn check_file(
    common: &CommonOptions,
    file: &Path,
    modules: ModuleOptions,
) -> Result<ExitCode, CliError> {
    let files = PolicyFiles::read(file)?;
    let policy = files.load(common.sandbox_tier)?;
    let mut warnings: Vec<String> =
        files.untrusted().iter().map(|error| format!("a start would not obey it: {error}")).collect();
    let unused_entries = policy.check_tools(&KnownTools::shipped());
    let has_modules = policy.modules_dir().is_some() || !modules.files.is_empty();
    let listing = match unused_entries {
        Ok(entries) => {
            add_warnings(&mut warnings, entries.iter().chain(policy.warnings()));
            shipped_assignments(&policy)
        }
        // The entry may be for a module's tool, so query the modules.
        Err(_) if has_modules => {
            let envelope = setup::envelope_with(common, modules)?;
            let runtime = setup::runtime()?;
            let registry = runtime.block_on(setup::describing_registry(&envelope, &files))?;
            add_warnings(&mut warnings, registry.unused_entries().iter().chain(policy.warnings()));
            format!("{}{}", tools::listing(&registry, None), tools::refused_modules(&registry))
        }
        Err(error) => return Err(BootstrapError::from(error).into()),
    };
    answer(&files, &policy, &listing, &warnings)
}

/// Shows the policy in force.
pub(crate) fn check_in_force(common: &CommonOptions, modules: ModuleOptions) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope_with(common, modules)?;
    let files = setup::policy_files(&envelope)?;
    // Load the policy first, so that a policy with faults leaves no folders behind.
    files.load(envelope.sandbox_tier)?;
    let runtime = setup::runtime()?;
    let registry = runtime.block_on(setup::registry(&envelope, sidecar::shell_source(common)))?;
    let policy = registry.policy();
    let mut warnings = Vec::new();
    add_warnings(&mut warnings, registry.unused_entries().iter().chain(policy.warnings()));
    let listing = format!("{}{}", tools::listing(&registry, None), tools::refused_modules(&registry));
    answer(&files, policy, &listing, &warnings)
}

/// Prints the effective policy, then the warnings.
fn answer(
    files: &PolicyFiles,
    policy: &WorkspaceSecurityPolicy,
    listing: &str,
    warnings: &[String],
) -> Result<ExitCode, CliError> {
    let mut answer = summary(files, policy);
    let _ = write!(answer, "\nall that holds, as a policy file\n");
    for line in policy.effective_toml().lines() {
        let _ = writeln!(answer, "{}{line}", if line.is_empty() { "" } else { "  " });
    }
    let _ = write!(answer, "\ntools\n{listing}");
    stream::write_output(&answer)?;
    for warning in warnings {
        stream::write_stderr(&format!("warning: {}\n", text::inline(warning)));
    }
    Ok(ExitCode::SUCCESS)
}

fn add_warnings<'a>(warnings: &mut Vec<String>, faults: impl Iterator<Item = &'a PolicyFault>) {
    warnings.extend(faults.map(ToString::to_string));
}

/// Lists the assignments of the shipped tools, without a registry.
fn shipped_assignments(policy: &WorkspaceSecurityPolicy) -> String {
    let rows = policy.offered_tools().map(|descriptor| {
        let assigned = policy.describe(&descriptor);
        let mounts = policy.mounts_of(&assigned.profile);
        let mounts: Vec<String> =
            mounts.iter().map(|mount| format!("/{} {}", mount.name, mount.access)).collect();
        let folder_list = if mounts.is_empty() { "no folder".to_owned() } else { mounts.join(", ") };
        let network = if policy.network_of(&assigned.profile).is_some() { ", network" } else { "" };
        [
            descriptor.name.to_string(),
            assigned.tier.to_string(),
            format!("{} ({folder_list}{network})", assigned.profile),
            if assigned.enabled { assigned.approval.to_string() } else { "disabled".to_owned() },
        ]
    });
    table::render(["TOOL", "TIER", "PROFILE", "APPROVAL"], rows)
}

/// Summarizes a policy: its source, its digest, its mounts, and the other settings that govern calls.
pub(super) fn summary(files: &PolicyFiles, policy: &WorkspaceSecurityPolicy) -> String {
    let mut out = summary_head(files, policy);
    let mut add_line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name}: {}", text::inline(value));
    };
    let mounts: Vec<String> =
        policy.mounts().iter().map(|mount| format!("/{} = {}", mount.name, mount.folder)).collect();
    add_line("mounts", &if mounts.is_empty() { "none".to_owned() } else { mounts.join(", ") });
    out.push_str(&policy.summary());
    out
}

/// Describes a policy's source and digest, and the sandbox sections that apply.
fn summary_head(files: &PolicyFiles, policy: &WorkspaceSecurityPolicy) -> String {
    let mut out = String::new();
    let mut add_line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name}: {}", text::inline(value));
    };
    add_line("policy", files.operator_name());
    if let Some(overlay) = files.overlay_name() {
        add_line("overlay", overlay);
    }
    add_line("digest", policy.digest().as_str());
    for SandboxSection { tier, is_applied } in policy.sandbox_sections() {
        let state = if *is_applied { "applied" } else { "not applied here" };
        add_line(&format!("[sandbox.{tier}]"), state);
    }
    out
}
