//! The allowed keys of each section of a policy text. A test checks that `render` shows each of them.

/// An operator's policy.
pub(crate) const POLICY: &[&str] = &[
    "version", "require", "home", "project", "mounts", "profiles", "tiers", "tools", "protect", "hide",
    "sandbox", "audit", "modules", "shell", "egress", "secrets", "search", "notify", "limits", "flow",
];

/// A `[sandbox.TIER]` section.
pub(crate) const SANDBOX: &[&str] = &[
    "require", "profiles", "tiers", "tools", "protect", "hide", "shell", "egress", "secrets", "search",
    "limits", "flow",
];

/// An overlay, which reduces the access of a policy.
pub(crate) const OVERLAY: &[&str] = &[
    "version", "require", "profiles", "tiers", "tools", "protect", "hide", "shell", "egress", "secrets",
    "search", "limits", "flow",
];

/// The keys that only an operator's policy may have.
pub(crate) const OPERATORS_ALONE: &[&str] =
    &["home", "project", "mounts", "sandbox", "audit", "modules", "notify"];

/// `[project]`.
pub(crate) const PROJECT: &[&str] = &["path"];

/// A table of `[mounts]`.
pub(crate) const MOUNT: &[&str] = &["path", "undo"];

/// `[profiles.NAME]`.
pub(crate) const PROFILE: &[&str] = &["mounts", "hosts", "methods"];

/// A line of `[tiers]`.
pub(crate) const TIER: &[&str] = &["profile", "approval"];

/// A line of `[tiers]` in a reduction.
pub(crate) const REDUCED_TIER: &[&str] = &["approval"];

/// `[tools.NAME]`.
pub(crate) const TOOL: &[&str] =
    &["profile", "approval", "unasked", "timeout", "memory", "max_output_bytes", "enabled", "optional"];

/// `[tools.NAME]` in a reduction.
pub(crate) const REDUCED_TOOL: &[&str] =
    &["approval", "timeout", "memory", "max_output_bytes", "enabled", "optional"];

/// `[protect]`.
pub(crate) const PROTECT: &[&str] = &["paths", "kinds", "except"];

/// `[hide]`, in a policy and in a reduction.
pub(crate) const HIDE: &[&str] = &["paths"];

/// `[audit]`.
pub(crate) const AUDIT: &[&str] = &["sync", "segment", "segment_age", "keep", "checkpoints", "key"];

/// `[modules]`.
pub(crate) const MODULES: &[&str] = &["dir"];

/// `[shell]`, in a policy and in a reduction.
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
    "read",
    "caches",
    "path",
    "variables",
    "hosts",
    "allow",
    "deny",
    "operators",
    "unasked",
];

/// `[egress]`.
pub(crate) const EGRESS: &[&str] =
    &["allow_private", "ca", "proxy", "max_response", "max_redirects", "robots"];

/// The keys of `[egress]` that a reduction may not have, because they add access or redirect requests.
pub(crate) const EGRESS_OPERATORS_ALONE: &[&str] = &["allow_private", "ca", "proxy"];

/// `[secrets.NAME]`.
pub(crate) const SECRET: &[&str] = &["from", "hosts", "header", "tools", "enabled"];

/// The keys of `[secrets.NAME]` that a reduction may not have.
pub(crate) const SECRET_OPERATORS_ALONE: &[&str] = &["from", "header"];

/// `[search]`.
pub(crate) const SEARCH: &[&str] = &["provider", "url", "engine"];

/// The keys of `[search]` that a reduction may not have, because they cannot take anything away.
pub(crate) const SEARCH_OPERATORS_ALONE: &[&str] = &["url", "engine"];

/// `[notify]`.
pub(crate) const NOTIFY: &[&str] = &["slack", "discord", "email", "from", "user"];

/// `[limits]`, in a policy and in a reduction.
pub(crate) const LIMITS: &[&str] =
    &["concurrency", "calls_per_minute", "max_output_bytes", "wasm_memory", "max_timeout"];

/// A file of expectations.
pub(crate) const EXPECTATIONS: &[&str] = &["version", "expect", "never", "unchanged"];

/// `[[expect]]`.
pub(crate) const EXPECT: &[&str] = &[
    "name", "tool", "tools", "profile", "path", "paths", "url", "command", "access", "verdict", "code",
    "after",
];

/// `[[never]]`.
pub(crate) const NEVER: &[&str] = &["name", "reads", "writes", "reaches", "unasked"];

/// `[[unchanged]]`.
pub(crate) const UNCHANGED: &[&str] = &["digest", "until", "by"];

/// `[[flow]]`, in a policy and in a reduction.
pub(crate) const FLOW: &[&str] = &["after", "then", "approval"];
