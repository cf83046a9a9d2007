//! Guest paths, as guests and models see them. Nothing here accesses a file system.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The maximum length of a guest path in bytes: 4,096, Linux's `PATH_MAX`.
pub const MAX_GUEST_PATH_BYTES: usize = 4096;

/// The mount in which relative paths are resolved.
const DEFAULT_MOUNT: &str = "shared";

/// An absolute path as a guest sees it, such as `/shared/notes/today.md`.
///
/// Parsing drops empty and `.` components and a trailing slash, and prepends `/shared/` to a relative path.
/// It keeps `..`, whose meaning depends on symlinks: only the mount's directory descriptor can resolve it.
/// [`GuestPath::climbs_out`] says whether `..` leads out of the mount even without symlinks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GuestPath(String);

impl GuestPath {
    /// Parses a path that a model or a tool wrote.
    ///
    /// # Errors
    /// [`InvalidGuestPath`] if the path is empty, contains a NUL character, or is longer than
    /// [`MAX_GUEST_PATH_BYTES`], including the mount that is prepended to a relative path.
    pub fn parse(text: &str) -> Result<Self, InvalidGuestPath> {
        if text.is_empty() {
            return Err(InvalidGuestPath::Empty);
        }
        if text.len() > MAX_GUEST_PATH_BYTES {
            return Err(InvalidGuestPath::TooLong { bytes: text.len() });
        }
        if text.contains('\0') {
            return Err(InvalidGuestPath::Nul);
        }
        let root = if text.starts_with('/') { None } else { Some(DEFAULT_MOUNT) };
        let parts = text.split('/').filter(|part| !part.is_empty() && *part != ".");
        let mut normalized = String::with_capacity(text.len() + 8);
        for part in root.into_iter().chain(parts) {
            normalized.push('/');
            normalized.push_str(part);
        }
        // A path of only slashes and dots, such as `/.`, has no components.
        if normalized.is_empty() {
            normalized.push('/');
        }
        // Check the length again: `/shared/` may have made the path too long, and every parsed path must
        // be parseable again.
        if normalized.len() > MAX_GUEST_PATH_BYTES {
            return Err(InvalidGuestPath::TooLong { bytes: normalized.len() });
        }
        Ok(Self(normalized))
    }

    /// The path as text. It always starts with `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The components, with the mount's name first; none for `/`.
    #[must_use]
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    /// The name of the mount in which the path starts; `None` for `/`.
    #[must_use]
    pub fn mount(&self) -> Option<&str> {
        self.components().next()
    }

    /// The part relative to the mount; `.` for the mount itself.
    #[must_use]
    pub fn below_mount(&self) -> &str {
        // The first byte is always `/`.
        match self.0[1..].split_once('/') {
            Some((_, rest)) => rest,
            None => ".",
        }
    }

    /// Whether `..` leads out of the mount even if no component is a symlink.
    #[must_use]
    pub fn climbs_out(&self) -> bool {
        let mut depth = 0_usize;
        // The first component is the mount itself.
        for part in self.components().skip(1) {
            if part == ".." {
                // Below zero, the path has left the mount, even if a later component leads back.
                let Some(parent_depth) = depth.checked_sub(1) else { return true };
                depth = parent_depth;
            } else {
                depth += 1;
            }
        }
        self.mount() == Some("..")
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for GuestPath {
    type Err = InvalidGuestPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for GuestPath {
    type Error = InvalidGuestPath;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<GuestPath> for String {
    fn from(path: GuestPath) -> Self {
        path.0
    }
}

/// Why a text is not a guest path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidGuestPath {
    /// The text is empty.
    #[error("the path is empty")]
    Empty,
    /// The text contains a NUL character.
    #[error("the path contains a NUL character")]
    Nul,
    /// The path is too long.
    #[error("the path has {bytes} bytes; at most {MAX_GUEST_PATH_BYTES} are allowed")]
    TooLong {
        /// The path's length in bytes.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, normalized: &str, mount: Option<&str>, below_mount: &str, climbs_out: bool) {
        let path = GuestPath::parse(text).expect("parses");
        assert_eq!(
            (path.as_str(), path.mount(), path.below_mount(), path.climbs_out()),
            (normalized, mount, below_mount, climbs_out)
        );
    }

    #[test]
    fn paths_are_normalized_without_following_anything() {
        check("/shared/a.txt", "/shared/a.txt", Some("shared"), "a.txt", false);
        check("a.txt", "/shared/a.txt", Some("shared"), "a.txt", false);
        check(".", "/shared", Some("shared"), ".", false);
        check("//shared//.//a/", "/shared/a", Some("shared"), "a", false);
        check("/shared", "/shared", Some("shared"), ".", false);
        check("/", "/", None, ".", false);
        check("/shared/a/../b", "/shared/a/../b", Some("shared"), "a/../b", false);
        check("/shared/../vault/x", "/shared/../vault/x", Some("shared"), "../vault/x", true);
        check("../x", "/shared/../x", Some("shared"), "../x", true);
        check("/shared/a/../../b/c", "/shared/a/../../b/c", Some("shared"), "a/../../b/c", true);
        check("/../etc", "/../etc", Some(".."), "etc", true);
    }

    #[test]
    fn invalid_path_is_refused_with_the_reason() {
        assert_eq!(GuestPath::parse(""), Err(InvalidGuestPath::Empty));
        assert_eq!(GuestPath::parse("/shared/a\0b"), Err(InvalidGuestPath::Nul));
        let long = "a".repeat(5000);
        assert_eq!(GuestPath::parse(&long), Err(InvalidGuestPath::TooLong { bytes: 5000 }));
    }

    #[test]
    fn the_mount_in_front_of_a_relative_path_counts() {
        let longest = "a".repeat(MAX_GUEST_PATH_BYTES - "/shared/".len());
        let path = GuestPath::parse(&longest).expect("as long as may be");
        assert_eq!(GuestPath::parse(path.as_str()), Ok(path));
        let bytes = MAX_GUEST_PATH_BYTES + 1;
        assert_eq!(GuestPath::parse(&format!("{longest}a")), Err(InvalidGuestPath::TooLong { bytes }));
    }

    proptest! {
        #[test]
        fn parsing_is_idempotent_and_absolute(text in "[a-z./]{1,40}") {
            let once = GuestPath::parse(&text).expect("parses");
            prop_assert!(once.as_str().starts_with('/'));
            prop_assert_eq!(&GuestPath::parse(once.as_str()).expect("parses"), &once);
        }
    }
}
