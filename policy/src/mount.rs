//! Mounts: the folders that a policy names, in the workspace or elsewhere on the host. The caller opens them.

use serde::Serialize;

use crate::MountName;

/// One mount. Guests see its folder as `/name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountSpec {
    /// The mount's name: the first component of the guest paths below the mount.
    pub name: MountName,
    /// The folder: relative to the workspace, or absolute. It has no `.`, no `..`, and no doubled or trailing slashes.
    pub folder: String,
    /// Whether changes are recorded so that a person can undo them. Default: no.
    pub has_undo: bool,
}

impl MountSpec {
    /// Returns whether the folder is given by its absolute path on the host. Such a folder must exist and is
    /// never created. Symlinks on its path are followed once, when it is opened.
    #[must_use]
    pub fn is_absolute(&self) -> bool {
        self.folder.starts_with('/')
    }
}

/// Checks a folder of `[mounts]` and converts it to the form of [`MountSpec::folder`].
///
/// A relative folder is a proper subfolder of the workspace, because the workspace itself contains files that
/// no tool may reach, such as its `portcullis.toml`. An absolute folder can only come from the operator: a
/// file that comes with a workspace may have no mounts.
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
    if text == "~" || text.starts_with("~/") {
        return Err("a mount's folder is not expanded: write its absolute path instead of `~`");
    }
    let is_absolute = text.starts_with('/');
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err("`..` is not allowed in a mount's folder: write its absolute path");
    }
    match (parts.is_empty(), is_absolute) {
        (true, true) => Err("a mount is a folder below `/`, not `/` itself"),
        (true, false) => Err(
            "a mount is a folder in the workspace, not the workspace itself; `portcullis init` makes an existing folder a project",
        ),
        (false, true) => Ok(format!("/{}", parts.join("/"))),
        (false, false) => Ok(parts.join("/")),
    }
}

/// Returns the folder of `[project]` in an operator's text, in the form of [`MountSpec::folder`]. Callers
/// need it before they load the policy, because the overlay is in that folder. `None` for a text without a
/// valid `[project]`. Loading the text then reports its faults.
#[must_use]
pub fn project_of(text: &str) -> Option<String> {
    let (table, _) = toml::de::DeTable::parse_recoverable(text);
    let project = table.get_ref().get("project")?.get_ref().as_table()?;
    parse_project(project.get("path")?.get_ref().as_str()?).ok()
}

/// Checks the folder of `[project]`, which is absolute, and converts it to the form of [`MountSpec::folder`].
pub(crate) fn parse_project(text: &str) -> Result<String, &'static str> {
    if text.starts_with('/') { parse_folder(text) } else { Err("a project's folder is an absolute path") }
}

/// Checks a folder of the host that is not a mount. Its path is absolute, or relative to the policy file. The
/// caller resolves it.
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

/// Returns whether two folders in the form of [`MountSpec::folder`] are equal or one is in the other.
///
/// Case is ignored, because on some file systems two names that differ in case open the same folder.
pub(crate) fn folders_overlap(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    // An absolute folder may lead into the workspace. The code that opens the folders compares their real paths.
    if one.starts_with('/') != other.starts_with('/') {
        return false;
    }
    // `zip` stops at the shorter path. If all its parts are equal, the folders are equal or nested.
    one.split('/').zip(other.split('/')).all(|(one, other)| one == other)
}

/// The maximum length of a folder in bytes: Linux's `PATH_MAX`.
const MAX_FOLDER_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_below_the_workspace_or_absolute() {
        let good = [("shared", "shared"), ("./a//b/", "a/b"), ("a/./b", "a/b"), ("..a", "..a"), ("a~", "a~")];
        let absolute = [("/srv", "/srv"), ("//srv/./a b//", "/srv/a b"), ("/..a/~", "/..a/~")];
        for (text, folder) in good.into_iter().chain(absolute) {
            assert_eq!(parse_folder(text).as_deref(), Ok(folder));
        }
        let long = "a".repeat(5000);
        for invalid in [
            "",
            ".",
            "./",
            "/",
            "//./",
            "..",
            "a/..",
            "../a",
            "a/../../b",
            "/a/../b",
            "~",
            "~/a",
            "a\0",
            &long,
        ] {
            assert!(parse_folder(invalid).is_err(), "{invalid}");
        }
        assert_eq!(parse_project("/srv/").as_deref(), Ok("/srv"));
        for invalid in ["", "srv", "./srv", "~/srv", "/", "/srv/.."] {
            assert!(parse_project(invalid).is_err(), "{invalid}");
        }
        assert_eq!(project_of("version = 9\n[project]\npath = '/a//b'\nx = 1").as_deref(), Some("/a/b"));
        for folder in
            ["", "[project]", "project = '/a'", "[project]\npath = 'a'", "[project]\npath = 1", "\0[["]
        {
            assert_eq!(project_of(folder), None, "{folder}");
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
            ("/a", "/A/b", true),
            ("/a", "/b", false),
            ("/a", "a", false),
        ] {
            assert_eq!(folders_overlap(one, other), overlap, "{one} {other}");
            assert_eq!(folders_overlap(other, one), overlap, "{other} {one}");
        }
    }
}
