//! `[shell]`: its content, its reductions, and the tools that get it.

mod authorize;
mod hosts;
mod load;
mod reduce;
mod toolchain;
mod unasked;

use portcullis_policy::{ToolDescriptor, ToolOrigin};
use portcullis_types::{Access, ArgumentRole, RoleKind, SafetyTier};

use crate::support::tool;

/// A section in which every key differs from its default.
pub(crate) const SECTION: &str = r#"
[shell]
enabled = true
posture = "strong"
mounts = { tmp = "write", shared = "read" }
timeout = "50s"
memory = "2GiB"
processes = 64
file_size = "10MiB"
output = "1MiB"
environment = ["LANG", "CI"]
allow = ["git", "ls"]
deny = ["git push", "curl"]
operators = ["|", "&&"]
"#;

/// The shipped tool that runs commands.
pub(crate) fn shell_exec() -> ToolDescriptor {
    ToolDescriptor {
        origin: ToolOrigin::ShippedShell,
        roles: vec![
            ArgumentRole { argument: "command".into(), role: RoleKind::Command },
            ArgumentRole::path("workdir", Access::Read),
        ],
        ..tool("shell_exec", SafetyTier::Privileged)
    }
}
