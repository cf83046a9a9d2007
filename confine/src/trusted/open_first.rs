//! Finds the first existing file among several paths, such as the operator's policy.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use super::{TrustError, open_file};

/// Opens the first of the files that exists, as [`open_file`] does. Returns `None` if none exists.
///
/// The search continues only after a missing file. An unusable file ends the search, because it may refuse
/// something that a later file allows. A dangling symlink ends it too. `on_doubt` is called with the reason if
/// another user could have removed a missing file.
///
/// # Errors
/// The path that ended the search, and the error of [`open_file`]. A dangling symlink is
/// [`TrustError::Unusable`].
pub fn open_first(
    paths: impl IntoIterator<Item = PathBuf>,
    on_doubt: impl Fn(&Path, &TrustError),
) -> Result<Option<(PathBuf, File)>, (PathBuf, TrustError)> {
    for path in paths {
        match open_file(&path) {
            Ok(file) => return Ok(Some((path, file))),
            Err(error) if error.is_missing() && path.symlink_metadata().is_ok() => {
                let source = io::Error::other("it is a link to a file that does not exist");
                return Err((path.clone(), TrustError::Unusable { path, source }));
            }
            Err(TrustError::Missing { cause: doubt, .. }) => on_doubt(&path, &doubt),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err((path, error)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        fs::{self, Permissions},
        io::Read as _,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    /// Creates a folder with the files `first` and `second`, whose texts are their names.
    fn fixture() -> (tempfile::TempDir, [PathBuf; 2]) {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["first", "second"].map(|name| folder.path().join(name).join("p.toml"));
        for (path, name) in paths.iter().zip(["first", "second"]) {
            let own_folder = path.parent().expect("a folder");
            fs::create_dir(own_folder).expect("the folder can be made");
            fs::set_permissions(own_folder, Permissions::from_mode(0o755)).expect("closed");
            fs::write(path, name).expect("written");
            fs::set_permissions(path, Permissions::from_mode(0o644)).expect("closed");
        }
        (folder, paths)
    }

    /// Returns the text of the file that is found.
    fn found(paths: &[PathBuf; 2]) -> Result<Option<String>, (PathBuf, TrustError)> {
        let opened = open_first(paths.clone(), |path, doubt| panic!("{path:?}: {doubt}"))?;
        Ok(opened.map(|(path, mut file)| {
            let mut text = String::new();
            file.read_to_string(&mut text).expect("read");
            assert!(path.parent().is_some_and(|folder| folder.ends_with(&text)), "{path:?}");
            text
        }))
    }

    #[test]
    fn only_an_absent_file_lets_the_search_go_on() {
        let (_folder, paths) = fixture();
        assert_eq!(found(&paths).expect("found").as_deref(), Some("first"));
        fs::remove_file(&paths[0]).expect("removed");
        assert_eq!(found(&paths).expect("found").as_deref(), Some("second"));
        fs::remove_dir_all(paths[1].parent().expect("a folder")).expect("removed");
        assert_eq!(found(&paths).expect("none is there"), None);
    }

    #[test]
    fn a_link_without_a_target_ends_the_search() {
        let (folder, paths) = fixture();
        fs::remove_file(&paths[0]).expect("removed");
        symlink(folder.path().join("missing"), &paths[0]).expect("linked");
        let (path, error) = found(&paths).expect_err("a dangling link");
        let TrustError::Unusable { source, .. } = error else { panic!("{error:?}") };
        assert_eq!(
            (&path, source.to_string().as_str()),
            (&paths[0], "it is a link to a file that does not exist")
        );
        // A symlink with a target is as good as a file.
        fs::rename(&paths[1], folder.path().join("missing")).expect("moved");
        let opened = open_first(paths, |path, doubt| panic!("{path:?}: {doubt}")).expect("opened");
        assert!(opened.is_some());
    }

    #[test]
    fn a_file_that_cannot_be_used_ends_the_search() {
        let (folder, mut paths) = fixture();
        // A folder.
        let own_folder = paths[0].parent().expect("a folder").to_owned();
        let (_, error) = found(&[own_folder.clone(), paths[1].clone()]).expect_err("a folder");
        assert!(matches!(error, TrustError::Kind { .. }), "{error:?}");
        // A file that others can change.
        fs::set_permissions(&paths[0], Permissions::from_mode(0o666)).expect("opened");
        let (path, error) = found(&paths).expect_err("writable");
        assert!(path == paths[0] && matches!(error, TrustError::Writable { .. }), "{error:?}");
        // A path that cannot be followed: a file in the place of a folder.
        paths[0].push("p.toml");
        let (path, error) = found(&paths).expect_err("no folder");
        assert!(path == paths[0] && matches!(error, TrustError::Unusable { .. }), "{error:?}");
        // A file that the user may not read, and one in a folder that the user may not enter.
        paths[0].pop();
        fs::set_permissions(&paths[0], Permissions::from_mode(0o200)).expect("closed");
        if rustix::process::geteuid().is_root() {
            eprintln!("skipped: root reads every file");
            return;
        }
        assert!(matches!(found(&paths), Err((_, TrustError::Unusable { .. }))));
        fs::set_permissions(&own_folder, Permissions::from_mode(0o600)).expect("closed");
        assert!(matches!(found(&paths), Err((_, TrustError::Unusable { .. }))));
        fs::set_permissions(&own_folder, Permissions::from_mode(0o700)).expect("opened");
        drop(folder);
    }

    #[test]
    fn an_absent_file_that_others_could_remove_is_reported() {
        let (_folder, paths) = fixture();
        fs::remove_file(&paths[0]).expect("removed");
        let own_folder = paths[0].parent().expect("a folder");
        fs::set_permissions(own_folder, Permissions::from_mode(0o777)).expect("opened");
        let reports = Cell::new(0);
        let opened = open_first(paths.clone(), |path, doubt| {
            assert!(path == paths[0] && matches!(doubt, TrustError::Writable { .. }), "{doubt:?}");
            reports.set(reports.get() + 1);
        });
        assert_eq!(opened.expect("opened").map(|(path, _)| path).as_ref(), Some(&paths[1]));
        assert_eq!(reports.get(), 1);
    }
}
