//! Git repositories in folders that are not called `.git`: bare ones, and those of submodules and worktrees.
//! Git reads their configuration and runs their hooks when a user works in them, or follows a `.git` file to
//! them, so the protection of `.git` applies to them too.
//!
//! Compares names only; the caller, which holds the folder, lists them.

use crate::{ProtectedPaths, protect::Pattern};

/// The names in a folder by which Git recognises a repository (gitrepository-layout(5)), as far as they were
/// seen.
///
/// Case is ignored, since some file systems ignore it. The names' targets are not looked at: each may be a
/// link.
#[expect(clippy::struct_excessive_bools, reason = "one for each name, independent of the others")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepositoryMarks {
    head: bool,
    objects: bool,
    refs: bool,
    common: bool,
}

impl RepositoryMarks {
    /// The names that mark a repository.
    pub const NAMES: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

    /// Notes a name in the folder; returns whether it is a mark.
    pub fn see(&mut self, name: &[u8]) -> bool {
        let marks = [&mut self.head, &mut self.objects, &mut self.refs, &mut self.common];
        let mut named =
            Self::NAMES.iter().zip(marks).filter(|(mark, _)| name.eq_ignore_ascii_case(mark.as_bytes()));
        // The names differ, so at most one fits.
        named.next().map(|(_, mark)| *mark = true).is_some()
    }

    /// Whether Git would take the folder for a repository. In a worktree's folder, `commondir` names the
    /// place of all but `HEAD`.
    #[must_use]
    pub fn is_repository(self) -> bool {
        self.head && (self.common || (self.objects && self.refs))
    }
}

impl ProtectedPaths {
    /// The pattern that protects a path below a repository, matched as if the repository's folder were called
    /// `.git`. For patterns that hold anywhere, use [`ProtectedPaths::covers`].
    pub fn covers_in_repository<'a, I>(&self, below: I) -> Option<&str>
    where
        I: IntoIterator<Item = &'a str, IntoIter: Clone>,
    {
        self.find_first(&std::iter::once(GIT).chain(below), Pattern::is_prefix_of)
    }

    /// Whether a path below a repository is a proper beginning of a protected one.
    pub fn is_prefix_in_repository<'a, I>(&self, below: I) -> bool
    where
        I: IntoIterator<Item = &'a str, IntoIter: Clone>,
    {
        self.find_first(&std::iter::once(GIT).chain(below), Pattern::has_proper_prefix).is_some()
    }

    /// Whether this is the name of a repository's folder in which something is protected. A file of this name
    /// leads Git to another folder, of any name.
    #[must_use]
    pub fn names_repository(&self, name: &str) -> bool {
        // Fast path: nearly all names are ASCII and not `.git`.
        if name.is_ascii() && !name.eq_ignore_ascii_case(GIT) {
            return false;
        }
        let mut below = self
            .patterns()
            .filter_map(|pattern| Some((pattern, pattern.strip_prefix(GIT)?.strip_prefix('/')?)));
        below
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
            marks.see(name.as_bytes());
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
        for (name, is) in
            [(".git", true), (".GIT", true), (".g\u{200c}it", true), ("git", false), (".bashrc", false)]
        {
            assert_eq!(protected.names_repository(name), is, "{name}");
        }
        let other = ProtectedPaths::parse([".bashrc", "config"]).expect("patterns");
        assert!(!other.names_repository(".git"));
        assert_eq!(other.covers_in_repository(["index"]), None);
    }
}
