//! The shipped tools, as a policy must know them without a registry: names, origins and declared tiers. A
//! test compares the list with the real tools.

use portcullis_types::{ArgumentRole, RoleKind, SafetyTier, ToolName, ToolPolicy};

use crate::{Standing, ToolFacts, ToolOrigin};

use SafetyTier::{Privileged, ReadOnly, SideEffecting};
use ToolOrigin::{ShippedModule, ShippedNative, ShippedOperation, ShippedShell};

/// All shipped tools, sorted by name.
const ALL: &[(&str, ToolOrigin, SafetyTier)] = &[
    ("add", ShippedNative, ReadOnly),
    ("divide", ShippedNative, ReadOnly),
    ("echo", ShippedNative, ReadOnly),
    ("failing_tool", ShippedNative, ReadOnly),
    ("file_delete", ShippedModule, SideEffecting),
    ("file_edit", ShippedModule, SideEffecting),
    ("file_list", ShippedModule, ReadOnly),
    ("file_read", ShippedModule, ReadOnly),
    ("file_search", ShippedModule, ReadOnly),
    ("file_write", ShippedModule, SideEffecting),
    ("get_current_time", ShippedNative, ReadOnly),
    ("multiply", ShippedNative, ReadOnly),
    ("output_read", ShippedNative, ReadOnly),
    ("search_web", ShippedOperation, SideEffecting),
    (SHELL_EXEC, ShippedShell, Privileged),
    ("subtract", ShippedNative, ReadOnly),
    ("vault_copyto", ShippedOperation, SideEffecting),
    ("vault_copyto_read", ShippedOperation, ReadOnly),
    ("vault_copyto_write", ShippedOperation, SideEffecting),
    ("web_fetch", ShippedOperation, SideEffecting),
    ("web_fetch_read", ShippedOperation, ReadOnly),
    ("web_fetch_read_pdf", ShippedOperation, ReadOnly),
    ("web_fetch_request", ShippedOperation, SideEffecting),
    ("web_fetch_robots", ShippedOperation, ReadOnly),
    ("web_search", ShippedOperation, SideEffecting),
    ("web_search_read", ShippedOperation, ReadOnly),
    ("web_search_request", ShippedOperation, SideEffecting),
];

/// The tool that runs commands.
pub(crate) const SHELL_EXEC: &str = "shell_exec";

/// The names of the shipped tools, sorted. A policy's entry may name each, whether or not the program has
/// registered the tool.
pub fn shipped_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _, _)| *name)
}

/// The facts of all shipped tools, sorted by name. The time and output that they declare are left out.
///
/// # Panics
/// Never: the names are valid.
pub fn shipped_tools() -> impl Iterator<Item = ToolFacts> {
    ALL.iter().map(|&(name, origin, tier)| ToolFacts {
        name: ToolName::parse(name).expect("a name of ours is one"),
        declared_tier: Some(tier),
        declared_policy: ToolPolicy::Auto,
        declared_timeout: None,
        declared_max_output: None,
        roles: (name == SHELL_EXEC)
            .then(|| ArgumentRole { argument: "command".to_owned(), role: RoleKind::Command })
            .into_iter()
            .collect(),
        origin,
        standing: Standing::Unpinned,
    })
}
