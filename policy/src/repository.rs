//! Git repositories in folders that are not called `.git`: bare repositories, and those of submodules and
//! worktrees. Git reads their configuration and runs their hooks when a user works in them or follows a
//! `.git` file to them, so they need the same protection as `.git`.
//!
//! This module only compares names. The caller holds the folder and lists its names.

use crate::{ProtectedPaths, protect::Pattern};

/// The names in a folder by which Git recognizes a repository (gitrepository-layout(5)).
/// Case is ignored, because some file systems ignore it. The files behind the names are not examined, because
/// each may be a symlink.
#[expect(clippy::struct_excessive_bools, reason = "one for each name, independent of the others")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepositoryMarks {
    has_head: bool,
    has_objects: bool,
    has_refs: bool,
    has_common_files: bool,
}

impl RepositoryMarks {
    /// The names that mark a repository.
    pub const NAMES: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

    /// Records a name in the folder. Returns whether the name is a mark.
    pub fn record_name(&mut self, name: &[u8]) -> bool {
        let marks =
            [&mut self.has_head, &mut self.has_objects, &mut self.has_refs, &mut self.has_common_files];
        let mut matching_marks =
            Self::NAMES.iter().zip(marks).filter(|(mark, _)| name.eq_ignore_ascii_case(mark.as_bytes()));
        // The names differ, so at most one matches.
        matching_marks.next().map(|(_, mark)| *mark = true).is_some()
    }

    /// Returns whether Git would treat the folder as a repository. In the folder of a worktree, `commondir`
    /// names the folder that has everything except `HEAD`.
    #[must_use]
    pub fn is_repository(self) -> bool {
        self.has_head && (self.has_common_files || (self.has_objects && self.has_refs))
    }
}

impl ProtectedPaths {
    /// Returns the pattern that protects a path below a repository, matched as if the repository's folder
    /// were called `.git`. For patterns that apply at any depth, use [`ProtectedPaths::covers`].
    pub fn covers_in_repository<'a, I>(&self, components: I) -> Option<&str>
    where
        I: IntoIterator<Item = &'a str, IntoIter: Clone>,
    {
        self.find_first(&std::iter::once(GIT).chain(components), Pattern::is_prefix_of)
    }

    /// Returns whether a path below a repository starts a protected path without completing it.
    pub fn is_prefix_in_repository<'a, I>(&self, components: I) -> bool
    where
        I: IntoIterator<Item = &'a str, IntoIter: Clone>,
    {
        self.find_first(&std::iter::once(GIT).chain(components), Pattern::has_proper_prefix).is_some()
    }

    /// Returns whether a folder of this name is a repository with protected content. A file of this name
    /// redirects Git to another folder, of any name.
    #[must_use]
    pub fn names_repository(&self, name: &str) -> bool {
        // Fast path: nearly all names are ASCII and not `.git`.
        if name.is_ascii() && !name.eq_ignore_ascii_case(GIT) {
            return false;
        }
        let mut marks_below_git = self
            .patterns()
            .filter_map(|pattern| Some((pattern, pattern.strip_prefix(GIT)?.strip_prefix('/')?)));
        marks_below_git
            .any(|(pattern, rest)| self.covers(std::iter::once(name).chain(rest.split('/'))) == Some(pattern))
    }
}

/// The name under which Git looks for a repository.
const GIT: &str = ".git";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], is_repository: bool) {
        let mut marks = RepositoryMarks::default();
        for name in names {
            marks.record_name(name.as_bytes());
        }
        assert_eq!(marks.is_repository(), is_repository, "{names:?}");
    }

    #[test]
    fn a_folder_is_a_repository_by_the_names_in_it() {
        check(&["HEAD", "objects", "refs"], true);
        check(&["refs", "x", "head", "Objects"], true);
        check(&["HEAD", "commondir", "gitdir"], true);
        check(&["objects", "refs", "config", "hooks"], false);
        check(&["HEAD", "objects"], false);
        check(&["commondir"], false);
        check(&[], false);
    }

    #[test]
    fn repository_of_any_name_is_protected_like_dot_git() {
        let protected = ProtectedPaths::parse([".git/hooks", ".git/config", ".bashrc"]).expect("patterns");
        assert_eq!(protected.covers_in_repository(["config"]), Some(".git/config"));
        assert_eq!(protected.covers_in_repository(["hooks", "pre-commit"]), Some(".git/hooks"));
        assert_eq!(protected.covers_in_repository(["index"]), None);
        assert_eq!(protected.covers_in_repository(["x", "config"]), None);
        assert_eq!(protected.covers_in_repository(["x", "..", "config"]), Some(".git/config"));
        for (name, names_repository) in
            [(".git", true), (".GIT", true), (".g\u{200c}it", true), ("git", false), (".bashrc", false)]
        {
            assert_eq!(protected.names_repository(name), names_repository, "{name}");
        }
        let without_git = ProtectedPaths::parse([".bashrc", "config"]).expect("patterns");
        assert!(!without_git.names_repository(".git"));
        assert_eq!(without_git.covers_in_repository(["index"]), None);
    }
}
