//! Decides whether a path is protected, from its names and the repositories that contain it.

use std::{borrow::Cow, ffi::OsStr, path::Path};

use portcullis_policy::ProtectedPaths;
use rustix::fs::FileType;

/// The repositories among a folder and the folders above it, each as the number of names in its path.
pub(super) struct RepositoryRoots(pub(super) Vec<usize>);

/// The names of a path, as text.
pub(super) struct PathParts<'a>(pub(super) Vec<Cow<'a, str>>);

impl<'a> PathParts<'a> {
    pub(super) fn new(path: &'a Path) -> Self {
        Self(path.iter().map(|part| part.to_string_lossy()).collect())
    }
}

impl RepositoryRoots {
    /// Whether `holds` is true for the rest of the path below any of the repositories.
    pub(super) fn any_holds(&self, parts: &PathParts<'_>, holds: impl Fn(&[Cow<'_, str>]) -> bool) -> bool {
        self.0.iter().any(|depth| holds(&parts.0[*depth..]))
    }
}

/// Whether a path is protected by its name or its kind.
pub(super) fn is_protected(
    patterns: &ProtectedPaths,
    path: &Path,
    kind: FileType,
    roots: &RepositoryRoots,
) -> bool {
    let parts = PathParts::new(path);
    if patterns.covers(&parts.0).is_some() {
        return true;
    }
    match kind {
        // A symlink at the path of a folder would redirect protected names to its target.
        FileType::Symlink if patterns.is_prefix_of_protected(&parts.0) => return true,
        // Git reads the repository's path from a file of this name.
        FileType::RegularFile
            if path
                .file_name()
                .and_then(OsStr::to_str)
                .is_some_and(|name| patterns.names_repository(name)) =>
        {
            return true;
        }
        _ => {}
    }
    roots.any_holds(&parts, |below| {
        let below = || below.iter().map(|part| &**part);
        patterns.covers_in_repository(below()).is_some()
            || (kind == FileType::Symlink && patterns.is_prefix_in_repository(below()))
    })
}
