//! Mounts: the folders of the workspace that a policy names. The caller opens them.

use serde::Serialize;

use crate::MountName;

/// One mount: guests see the folder as `/name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountSpec {
    /// The name, and the first component of the guest paths below it.
    pub name: MountName,
    /// The folder, relative to the workspace, without `.`, `..`, doubled or trailing slashes.
    pub folder: String,
}

/// Checks a folder of `[mounts]` and converts it to the form of [`MountSpec::folder`].
///
/// A mount is a proper subfolder of the workspace: the workspace itself holds files that no tool may reach,
/// such as its `portcullis.toml`.
pub(crate) fn parse_folder(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Err("a mount needs a folder");
    }
    if text.len() > MAX_FOLDER_BYTES {
        return Err("the folder's name has more than 4096 bytes");
    }
    if text.contains('\0') {
        return Err("a folder cannot have a NUL character in its name");
    }
    if text.starts_with('/') {
        return Err("a mount lies in the workspace: write the folder relative to it");
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err("a mount lies in the workspace: `..` is not allowed");
    }
    if parts.is_empty() {
        return Err("a mount is a folder in the workspace, not the workspace itself");
    }
    Ok(parts.join("/"))
}

/// Checks a folder of the host that is not a mount: absolute, or relative to the policy file. The caller
/// resolves it.
pub(crate) fn parse_host_folder(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Err("a folder is missing; write its path, absolute or relative to this file");
    }
    if text.len() > MAX_FOLDER_BYTES {
        return Err("the folder's name has more than 4096 bytes");
    }
    if text.contains('\0') {
        return Err("a folder cannot have a NUL character in its name");
    }
    Ok(text.to_owned())
}

/// Whether two folders in the form of [`MountSpec::folder`] are the same or one lies in the other.
///
/// Letters of different case count as the same: on a case-insensitive file system they are.
pub(crate) fn folders_overlap(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    // `zip` ends with the shorter one: equal so far means the same folder, or one within the other.
    one.split('/').zip(other.split('/')).all(|(one, other)| one == other)
}

/// Linux's `PATH_MAX`.
const MAX_FOLDER_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_relative_and_below_the_workspace() {
        for (text, folder) in [("shared", "shared"), ("./a//b/", "a/b"), ("a/./b", "a/b"), ("..a", "..a")] {
            assert_eq!(parse_folder(text).as_deref(), Ok(folder));
        }
        for bad in ["", ".", "./", "/", "/etc", "..", "a/..", "../a", "a/../../b", "a\0", &"a".repeat(5000)] {
            assert!(parse_folder(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn folders_overlap_when_one_is_or_holds_the_other() {
        for (one, other, overlap) in [
            ("a", "a", true),
            ("a", "A", true),
            ("a", "a/b", true),
            ("a/b/c", "a/b", true),
            ("a", "ab", false),
            ("a/b", "a/c", false),
            ("shared", "shared-2", false),
        ] {
            assert_eq!(folders_overlap(one, other), overlap, "{one} {other}");
            assert_eq!(folders_overlap(other, one), overlap, "{other} {one}");
        }
    }
}
