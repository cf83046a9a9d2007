//! The policy of a registry that names none.

use portcullis_policy::WorkspaceSecurityPolicy;
use portcullis_types::SandboxTier;

use crate::{error::BootstrapError, expectations::ExpectedPolicy, policy_files::PolicyFiles};

/// The operator's policy, or the shipped policy, with what the operator expects of it.
pub(super) fn installed_policy() -> Result<(WorkspaceSecurityPolicy, Option<ExpectedPolicy>), BootstrapError>
{
    let files = PolicyFiles::without_workspace()?;
    let policy = files.load(SandboxTier::Process)?;
    Ok((policy, ExpectedPolicy::beside(&files, SandboxTier::Process)?))
}
