//! The names of shipped tools, for authors who choose a name without a registry.

use portcullis_policy::shipped_names;
use portcullis_types::ToolName;

use super::accept::name_skeleton;

/// Finds the shipped tool, or the step of a shipped tool, whose name equals or resembles `name`. A module's
/// tool must not have such a name.
#[must_use]
pub fn shipped_name_like(name: &ToolName) -> Option<&'static str> {
    let own_likeness = name_skeleton(name);
    shipped_names().find(|shipped| {
        ToolName::parse(*shipped).is_ok_and(|shipped| name_skeleton(&shipped) == own_likeness)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_like_a_shipped_one_is_found() {
        let shipped_like = |name: &str| shipped_name_like(&ToolName::parse(name).expect("a name"));
        for (name, shipped) in [
            ("file_read", Some("file_read")),
            ("f1le-read", Some("file_read")),
            ("vault_copyto_read", Some("vault_copyto_read")),
            ("shellexec", Some("shell_exec")),
            ("shellExec", Some("shell_exec")),
            ("word_count", None),
            ("file_reader", None),
        ] {
            assert_eq!(shipped_like(name), shipped, "{name}");
        }
    }
}
