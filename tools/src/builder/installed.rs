//! The policy of a registry that is built without one.

use portcullis_policy::WorkspaceSecurityPolicy;
use portcullis_types::SandboxTier;

use crate::{error::BootstrapError, expectations::StartupExpectations, policy_files::PolicyFiles};

/// Loads the operator's policy, or the shipped policy, with the operator's expectations of it.
pub(super) fn installed_policy()
-> Result<(WorkspaceSecurityPolicy, Option<StartupExpectations>), BootstrapError> {
    let files = PolicyFiles::without_workspace()?;
    let policy = files.load(SandboxTier::Process)?;
    Ok((policy, StartupExpectations::beside(&files, SandboxTier::Process)?))
}
