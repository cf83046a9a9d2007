//! Creates folders atomically: complete or not at all.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use rustix::fs::{CWD, RenameFlags};

/// Fills a folder under a temporary name and then renames it, so that no process sees a half-filled folder.
/// An existing folder is never replaced. If a step fails, the unfinished folder is removed.
///
/// # Errors
/// The errors of `fill`, `AlreadyExists` if the path is taken, and the system's errors.
pub(crate) fn create_folder<E: From<io::Error>>(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let parent = path.parent().ok_or_else(|| io::Error::from(io::ErrorKind::AlreadyExists))?;
    let unfinished = parent.join(format!(".portcullis-new-{}", std::process::id()));
    DirBuilder::new().mode(mode).create(&unfinished)?;
    let result = fill(&unfinished).and_then(|()| {
        rustix::fs::renameat_with(CWD, &unfinished, CWD, path, RenameFlags::NOREPLACE)
            .map_err(|errno| E::from(errno.into()))
    });
    if result.is_err() {
        // Ignore a failure to remove the folder: no other process uses its name.
        let _ = fs::remove_dir_all(&unfinished);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_complete_or_absent_and_never_replaced() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("a");
        let fill_failure = create_folder(&path, 0o755, |_| Err(io::Error::other("no")));
        assert_eq!(fill_failure.expect_err("the filling").to_string(), "no");
        assert_eq!(fs::read_dir(root.path()).expect("readable").count(), 0);
        create_folder(&path, 0o755, |unfinished| fs::write(unfinished.join("x"), "1")).expect("made");
        let second_creation = create_folder(&path, 0o755, |unfinished| fs::write(unfinished.join("x"), "2"));
        assert_eq!(second_creation.expect_err("taken").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(path.join("x")).expect("the file is readable"), "1");
        assert_eq!(fs::read_dir(root.path()).expect("readable").count(), 1);
    }
}
