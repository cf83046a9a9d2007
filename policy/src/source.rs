//! The texts that a policy is loaded from, read by the caller.

use portcullis_types::SandboxTier;

/// The policy that applies if no other is given. `portcullis policy default` prints it.
pub const DEFAULT_POLICY: &str = include_str!("../default.toml");

/// The maximum length of a policy text in bytes: 256 KiB.
pub(crate) const MAX_POLICY_TEXT_BYTES: usize = 256 * 1024;

/// The maximum length of an overlay in bytes: 64 KiB. An overlay comes from the workspace, where an agent may
/// have written it to slow down every start.
pub(crate) const MAX_OVERLAY_BYTES: usize = 64 * 1024;

/// One policy text and its name in errors.
#[derive(Debug, Clone, Copy)]
pub struct PolicySource<'a> {
    /// The name shown in errors, usually the file's path.
    pub name: &'a str,
    /// The TOML text.
    pub text: &'a str,
}

/// The inputs of [`crate::WorkspaceSecurityPolicy::load`].
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions<'a> {
    /// The operator's policy, or [`DEFAULT_POLICY`]. Only this text can grant anything.
    pub operator: PolicySource<'a>,
    /// The `portcullis.toml` of the workspace, if present. It can only take away.
    pub overlay: Option<PolicySource<'a>>,
    /// The isolation of the runner, which selects the operator's `[sandbox.…]` section.
    pub sandbox_tier: SandboxTier,
}
