//! Detects Git repositories whose folder is not named `.git`, to protect their files from writes.
//!
//! A folder is examined beneath its mount's handle, and only if a name in the path can belong to a
//! repository.

use std::os::fd::BorrowedFd;

use portcullis_policy::{ProtectedPaths, RepositoryMarks};
use rustix::{fs::OFlags, io::Errno};

use crate::mounts::resolve_beneath;

/// Returns the pattern that protects a path. The path is given as its components below the mount, with
/// links resolved. A path is protected if Git obeys it in a repository, or if it would complete a folder to
/// a repository. The latter is refused too, because files that Git would then obey may have been written
/// earlier.
#[must_use]
pub fn protects(protected: &ProtectedPaths, mount: BorrowedFd<'_>, below: &[String]) -> Option<String> {
    let parts = |start: usize| below[start..].iter().map(String::as_str);
    for depth in 0..below.len() {
        let folder = &below[..depth];
        if let Some(pattern) = protected.covers_in_repository(parts(depth))
            && marks(mount, folder).is_repository()
        {
            return Some(pattern.to_owned());
        }
    }
    let (name, folder) = below.split_last()?;
    if !RepositoryMarks::default().record_name(name.as_bytes()) || !protected.names_repository(GIT) {
        return None;
    }
    // In a folder named like a repository, all relevant files are already protected.
    if folder.last().is_some_and(|folder| protected.names_repository(folder)) {
        return None;
    }
    let before = marks(mount, folder);
    let mut after = before;
    after.record_name(name.as_bytes());
    (after.is_repository() && !before.is_repository()).then(|| GIT.to_owned())
}

/// Returns the parts of a repository that a folder has. A part that cannot be examined counts as present.
fn marks(mount: BorrowedFd<'_>, folder: &[String]) -> RepositoryMarks {
    let mut marks = RepositoryMarks::default();
    for name in RepositoryMarks::NAMES {
        let path: Vec<&str> = folder.iter().map(String::as_str).chain([name]).collect();
        let lookup = resolve_beneath(mount, &path.join("/"), OFlags::NOFOLLOW);
        // A name that is not UTF-8 was converted lossily, so it cannot be looked up.
        let is_nameless = folder.iter().any(|part| part.contains(char::REPLACEMENT_CHARACTER));
        if is_nameless || !matches!(lookup, Err(Errno::NOENT | Errno::NOTDIR)) {
            marks.record_name(name.as_bytes());
        }
    }
    marks
}

/// The name that Git looks for when it searches a repository.
const GIT: &str = ".git";

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd as _, path::Path};

    use super::*;

    #[track_caller]
    fn check(root: &Path, path: &str, pattern: Option<&str>) {
        let protected =
            ProtectedPaths::parse([".git/hooks", ".git/config", ".git/commondir"]).expect("patterns");
        let mount = fs::File::open(root).expect("a folder");
        let below: Vec<String> = path.split('/').map(str::to_owned).collect();
        assert_eq!(protects(&protected, mount.as_fd(), &below).as_deref(), pattern, "{path}");
    }

    #[test]
    fn config_and_hooks_of_any_repository_are_protected() {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["bare/objects", "bare/refs", "plain/objects", "tree"] {
            fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        for file in ["bare/HEAD", "tree/HEAD", "tree/commondir"] {
            fs::write(root.path().join(file), "").expect("written");
        }
        for path in ["bare/config", "bare/CONFIG", "tree/config"] {
            check(root.path(), path, Some(".git/config"));
        }
        check(root.path(), "bare/hooks/pre-commit", Some(".git/hooks"));
        for path in ["bare/index", "bare/HEAD", "bare/a/config", "plain/config", "config", "hooks/x"] {
            check(root.path(), path, None);
        }
    }

    #[test]
    fn the_last_thing_that_makes_a_repository_is_protected() {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["half/objects", "half/refs", "other", ".git/objects", ".git/refs"] {
            fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        fs::write(root.path().join("other/HEAD"), "").expect("written");
        for path in ["half/HEAD", "half/head", "other/commondir"] {
            check(root.path(), path, Some(".git"));
        }
        for path in ["half/refs", "other/objects", "HEAD", ".git/HEAD", "half/objects/HEAD"] {
            check(root.path(), path, None);
        }
    }
}
