//! The names of shipped tools, for authors who choose a name before there is a registry.

use portcullis_policy::shipped_names;
use portcullis_types::ToolName;

use super::accept::likeness;

/// The shipped tool, or the step of one, whose name equals or resembles this one. A module's tool must not
/// have such a name.
#[must_use]
pub fn shipped_name_like(name: &ToolName) -> Option<&'static str> {
    let wanted = likeness(name);
    shipped_names()
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
