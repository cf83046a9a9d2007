//! The shipped tools as a policy needs them without a registry: their names, origins, declared tiers and
//! roles. A test compares this list with the real tools.

use std::time::Duration;

use portcullis_types::{Access, ArgumentRole, RoleKind, SafetyTier, ToolName, ToolPolicy};

use crate::{Operation, PinStatus, ToolDescriptor, ToolOrigin, WorkspaceSecurityPolicy};

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
    ("send_notification", ShippedOperation, SideEffecting),
    ("send_notification_mail", ShippedOperation, SideEffecting),
    ("send_notification_request", ShippedOperation, SideEffecting),
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

/// Returns the names of the shipped tools, sorted. A policy's entry may use any of them, whether or not the
/// program has registered the tool.
pub fn shipped_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _, _)| *name)
}

/// Returns the descriptors of all shipped tools, sorted by name, without their declared outputs. `shell_exec`
/// declares the timeout of `[shell]`, which is not known here.
///
/// # Panics
/// Never: the names are valid.
pub fn shipped_tools() -> impl Iterator<Item = ToolDescriptor> {
    ALL.iter().map(|&(name, origin, tier)| ToolDescriptor {
        name: ToolName::parse(name).expect("shipped names are valid tool names"),
        declared_tier: Some(tier),
        declared_policy: declared_policy(name),
        declared_timeout: timeout(name),
        declared_max_output: None,
        roles: roles(name),
        origin,
        pin_status: PinStatus::Unpinned,
    })
}

impl WorkspaceSecurityPolicy {
    /// Returns the shipped tools that exist under this policy: tools that search the web need a provider, and
    /// tools that send notifications need a service.
    pub fn offered_tools(&self) -> impl Iterator<Item = ToolDescriptor> {
        let (has_provider, has_notify) = (self.search().is_some(), self.notify().is_some());
        shipped_tools()
            .filter(move |tool| has_provider || !Operation::needs_search_provider(tool.name.as_str()))
            .filter(move |tool| has_notify || !Operation::needs_notify(tool.name.as_str()))
    }
}

/// Returns the declaration of a shipped tool about approvals. A notification sends text from the model to
/// another machine.
fn declared_policy(name: &str) -> ToolPolicy {
    if name == Operation::SEND_NOTIFICATION.name { ToolPolicy::RequiresApproval } else { ToolPolicy::Auto }
}

/// Returns the timeout that a shipped tool declares in its `#[tool]`. It is repeated here, because this crate
/// knows no module. A test compares it with the registered tools.
fn timeout(name: &str) -> Option<Duration> {
    let seconds = match name {
        "file_read" | "file_list" => 10,
        "file_write" | "file_edit" | "file_delete" => 15,
        "file_search" => 20,
        _ => return None,
    };
    Some(Duration::from_secs(seconds))
}

/// Returns the roles of a shipped tool's arguments.
fn roles(name: &str) -> Vec<ArgumentRole> {
    let role = |argument: &str, role| ArgumentRole { argument: argument.to_owned(), role };
    let (source, destination) = (
        role("source_path", RoleKind::Path(Access::Read)),
        role("destination_path", RoleKind::Path(Access::Write)),
    );
    match name {
        "file_read" | "file_list" | "file_search" => vec![role("path", RoleKind::Path(Access::Read))],
        "file_write" | "file_edit" => vec![role("path", RoleKind::Path(Access::Write))],
        "file_delete" => vec![role("path", RoleKind::Entry)],
        SHELL_EXEC => vec![role("command", RoleKind::Command), role("workdir", RoleKind::Path(Access::Read))],
        "vault_copyto" => vec![source, destination],
        "vault_copyto_read" => vec![source],
        "vault_copyto_write" => vec![destination],
        "web_fetch" | "web_fetch_request" | "web_search_request" | "send_notification_request" => {
            vec![role("url", RoleKind::Url)]
        }
        "send_notification_mail" => vec![role("server", RoleKind::Url)],
        _ => Vec::new(),
    }
}
