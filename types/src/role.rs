//! Roles tell the policy which arguments are paths, URLs or commands.

use serde::{Deserialize, Serialize};

crate::word_enum! {
    /// How a mount or a path is used. `Write` includes reading.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Access {
        /// Reading and listing.
        Read = "read",
        /// Reading, creating, changing and deleting.
        Write = "write",
    }
}

/// The role of one argument. The policy reads roles, and infers nothing from a tool's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgumentRole {
    /// The argument's name in the tool's schema.
    pub argument: String,
    /// The kind of subject that the argument names.
    pub role: RoleKind,
}

impl ArgumentRole {
    /// Declares an argument that is a path, used with this access.
    #[must_use]
    pub fn path(argument: impl Into<String>, access: Access) -> Self {
        Self { argument: argument.into(), role: RoleKind::Path(access) }
    }
}

impl RoleKind {
    /// The access to the path; `None` if the role is not a path.
    #[must_use]
    pub const fn path_access(self) -> Option<Access> {
        match self {
            Self::Path(access) => Some(access),
            Self::Entry => Some(Access::Write),
            Self::Url | Self::Command => None,
        }
    }
}

/// The kind of subject that an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleKind {
    /// A guest path that the tool uses with this access. A symlink at the end of the path is followed.
    Path(Access),
    /// A guest path whose directory entry changes, for example when a file is removed. The access is always
    /// [`Access::Write`]. A symlink at the end of the path is not followed, because the path names the
    /// symlink itself; earlier symlinks are followed.
    Entry,
    /// A URL that the tool fetches.
    Url,
    /// A shell command that the tool runs.
    Command,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn roles_have_a_readable_wire_form() {
        let roles = vec![
            ArgumentRole::path("path", Access::Write),
            ArgumentRole { argument: "old".into(), role: RoleKind::Entry },
            ArgumentRole { argument: "url".into(), role: RoleKind::Url },
        ];
        let wire = json!([
            {"argument": "path", "role": {"path": "write"}},
            {"argument": "old", "role": "entry"},
            {"argument": "url", "role": "url"},
        ]);
        assert_eq!(serde_json::to_value(&roles).expect("encodes"), wire);
        assert_eq!(serde_json::from_value::<Vec<ArgumentRole>>(wire).expect("decodes"), roles);
    }
}
