//! The names that shipped tools have, for authors who look for one before there is a registry.

use portcullis_policy::Operation;
use portcullis_types::ToolName;

use super::accept::likeness;

/// The names of all shipped tools but the steps of operations. A test holds it against a registry.
pub const SHIPPED_TOOLS: [&str; 16] = [
    "add",
    "divide",
    "echo",
    "failing_tool",
    "file_delete",
    "file_edit",
    "file_list",
    "file_read",
    "file_search",
    "file_write",
    "get_current_time",
    "multiply",
    "output_read",
    "shell_exec",
    "subtract",
    "vault_copyto",
];

/// The shipped tool, or step of one, whose name this one is or would be taken for. No module's tool may have
/// such a name.
#[must_use]
pub fn shipped_name_like(name: &ToolName) -> Option<&'static str> {
    let wanted = likeness(name);
    let steps = Operation::ALL.iter().flat_map(|operation| operation.steps).copied();
    SHIPPED_TOOLS
        .into_iter()
        .chain(steps)
        .find(|shipped| ToolName::parse(*shipped).is_ok_and(|shipped| likeness(&shipped) == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_like_a_shipped_one_is_found() {
        let like = |name: &str| shipped_name_like(&ToolName::parse(name).expect("a name"));
        for (name, shipped) in [
            ("file_read", Some("file_read")),
            ("f1le-read", Some("file_read")),
            ("vault_copyto_read", Some("vault_copyto_read")),
            ("shellexec", Some("shell_exec")),
            ("word_count", None),
            ("file_reader", None),
        ] {
            assert_eq!(like(name), shipped, "{name}");
        }
    }
}
