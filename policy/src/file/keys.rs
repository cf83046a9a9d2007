//! The allowed keys of each section of a policy text. A test checks that `render` shows every key listed
//! here.

/// An operator's policy.
pub(crate) const POLICY: &[&str] = &[
    "version", "require", "mounts", "profiles", "tiers", "tools", "protect", "sandbox", "audit", "modules",
    "shell", "egress", "secrets", "search", "limits", "flow",
];

/// A `[sandbox.TIER]` section.
pub(crate) const SANDBOX: &[&str] = &[
    "require", "profiles", "tiers", "tools", "protect", "shell", "egress", "secrets", "search", "limits",
    "flow",
];

/// An overlay.
pub(crate) const OVERLAY: &[&str] = &[
    "version", "require", "profiles", "tiers", "tools", "protect", "shell", "egress", "secrets", "search",
    "limits", "flow",
];

/// The keys that an operator's policy may have and an overlay may not.
pub(crate) const OPERATORS_ALONE: &[&str] = &["mounts", "sandbox", "audit", "modules"];

/// `[profiles.NAME]`.
pub(crate) const PROFILE: &[&str] = &["mounts", "hosts", "methods"];

/// A line of `[tiers]`.
pub(crate) const TIER: &[&str] = &["profile", "approval"];

/// A line of `[tiers]` of a reduction.
pub(crate) const REDUCED_TIER: &[&str] = &["approval"];

/// `[tools.NAME]`.
pub(crate) const TOOL: &[&str] =
    &["profile", "approval", "timeout", "memory", "max_output_bytes", "enabled", "optional"];

/// `[tools.NAME]` of a reduction.
pub(crate) const REDUCED_TOOL: &[&str] =
    &["approval", "timeout", "memory", "max_output_bytes", "enabled", "optional"];

/// `[protect]`.
pub(crate) const PROTECT: &[&str] = &["paths", "except"];

/// `[audit]`.
pub(crate) const AUDIT: &[&str] = &["sync"];

/// `[modules]`.
pub(crate) const MODULES: &[&str] = &["dir"];

/// `[shell]`, of a policy and of a reduction.
pub(crate) const SHELL: &[&str] = &[
    "enabled",
    "posture",
    "mounts",
    "timeout",
    "memory",
    "processes",
    "file_size",
    "output",
    "environment",
    "hosts",
    "allow",
    "deny",
    "operators",
];

/// `[egress]`.
pub(crate) const EGRESS: &[&str] = &["allow_private", "ca", "proxy", "max_response", "max_redirects"];

/// The keys of `[egress]` that a reduction may not have: they add, or lead elsewhere.
pub(crate) const EGRESS_OPERATORS_ALONE: &[&str] = &["allow_private", "ca", "proxy"];

/// `[secrets.NAME]`.
pub(crate) const SECRET: &[&str] = &["from", "hosts", "header", "tools", "enabled"];

/// The keys of `[secrets.NAME]` that a reduction may not have.
pub(crate) const SECRET_OPERATORS_ALONE: &[&str] = &["from", "header"];

/// `[search]`.
pub(crate) const SEARCH: &[&str] = &["provider", "url", "engine"];

/// The keys of `[search]` that a reduction may not have: they only set.
pub(crate) const SEARCH_OPERATORS_ALONE: &[&str] = &["url", "engine"];

/// `[limits]`, of a policy and of a reduction.
pub(crate) const LIMITS: &[&str] =
    &["concurrency", "calls_per_minute", "max_output_bytes", "wasm_memory", "max_timeout"];

/// `[[flow]]`, of a policy and of a reduction.
pub(crate) const FLOW: &[&str] = &["after", "then", "approval"];
