//! Folders that are made atomically: complete or not at all.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use rustix::fs::{CWD, RenameFlags};

/// Fills a folder under a temporary name beside its place, then renames it there, so that no process finds a
/// part of it. An existing folder is never replaced, and an incomplete one is removed.
///
/// # Errors
/// The errors of `fill`; `AlreadyExists` if the place is taken; the system's errors.
pub(crate) fn folder<E: From<io::Error>>(
    place: &Path,
    mode: u32,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let parent = place.parent().ok_or_else(|| io::Error::from(io::ErrorKind::AlreadyExists))?;
    let unfinished = parent.join(format!(".portcullis-new-{}", std::process::id()));
    DirBuilder::new().mode(mode).create(&unfinished)?;
    let made = fill(&unfinished).and_then(|()| {
        rustix::fs::renameat_with(CWD, &unfinished, CWD, place, RenameFlags::NOREPLACE)
            .map_err(|errno| E::from(errno.into()))
    });
    if made.is_err() {
        // The unfinished folder is ours alone, so a failure to remove it is ignored.
        let _ = fs::remove_dir_all(&unfinished);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_whole_or_not_there_and_replaces_nothing() {
        let root = tempfile::tempdir().expect("a folder");
        let place = root.path().join("a");
        let fails = folder(&place, 0o755, |_| Err(io::Error::other("no")));
        assert_eq!(fails.expect_err("the filling").to_string(), "no");
        assert_eq!(fs::read_dir(root.path()).expect("readable").count(), 0);
        folder(&place, 0o755, |it| fs::write(it.join("x"), "1")).expect("made");
        let again = folder(&place, 0o755, |it| fs::write(it.join("x"), "2"));
        assert_eq!(again.expect_err("taken").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(place.join("x")).expect("there"), "1");
        assert_eq!(fs::read_dir(root.path()).expect("readable").count(), 1);
    }
}
