//! `portcullis policy`: the shipped policy, and what a policy gives to whom.

use std::{fmt::Write as _, path::Path, process::ExitCode};

use portcullis_tools::{
    PolicyFiles,
    policy::{DEFAULT_POLICY, WorkspaceSecurityPolicy},
};

use super::tools;
use crate::{
    cli::Common,
    error::CliError,
    output::{stream, text},
    setup, sidecar,
};

/// Prints the shipped policy.
pub(crate) fn default() -> Result<ExitCode, CliError> {
    stream::answer(DEFAULT_POLICY)?;
    Ok(ExitCode::SUCCESS)
}

/// Checks one file by itself.
pub(crate) fn check_file(common: &Common, file: &Path) -> Result<ExitCode, CliError> {
    let files = PolicyFiles::read(file)?;
    let policy = files.load(common.sandbox_tier)?;
    stream::answer(&summary(&files, &policy))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the policy in force.
pub(crate) fn check_in_force(common: &Common) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope(common)?;
    let files = PolicyFiles::find(&envelope)?;
    // First by itself, so that a policy with faults leaves no folders behind.
    files.load(envelope.sandbox_tier)?;
    let runtime = setup::runtime()?;
    let registry = runtime.block_on(setup::registry(&envelope, sidecar::place(common)))?;
    let mut answer = summary(&files, registry.policy());
    let _ = write!(answer, "\ntools\n{}{}", tools::listing(&registry), tools::refused(&registry));
    stream::answer(&answer)?;
    Ok(ExitCode::SUCCESS)
}

fn summary(files: &PolicyFiles, policy: &WorkspaceSecurityPolicy) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name}: {}", text::inline(value));
    };
    line("policy", files.operator_name());
    if let Some(overlay) = files.overlay_name() {
        line("overlay", overlay);
    }
    line("digest", policy.digest().as_str());
    let mounts: Vec<String> =
        policy.mounts().iter().map(|mount| format!("/{} = {}", mount.name, mount.folder)).collect();
    line("mounts", &if mounts.is_empty() { "none".to_owned() } else { mounts.join(", ") });
    out.push_str(&policy.summary());
    out
}
