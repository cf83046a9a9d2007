//! The state folder: audit log, module cache and stored outputs. It is private to its user, and is outside every
//! mount.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use portcullis_confine::user_folders;
use thiserror::Error;

/// Returns the default state folder: `$XDG_STATE_HOME/portcullis/in-process`, else the same below
/// `$HOME/.local/state`. `None` if neither variable is an absolute path.
pub(crate) fn default_folder() -> Option<PathBuf> {
    Some(user_folders::state()?.join("portcullis/in-process"))
}

/// Creates the state folder if it does not exist, and makes an existing folder private.
///
/// # Errors
/// [`StateError`] if the folder cannot be created, belongs to another user, or is on a file system without
/// permissions.
pub fn prepare(path: &Path) -> Result<(), StateError> {
    let unusable = |source| StateError::Unusable { path: path.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
    let metadata = fs::metadata(path).map_err(unusable)?;
    let own_uid = rustix::process::geteuid().as_raw();
    if metadata.uid() != own_uid {
        return Err(StateError::Foreign { path: path.to_owned(), owner: metadata.uid(), own: own_uid });
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        // A folder that a person created may be too open. Restrict it, because its content must stay private.
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(unusable)?;
        // Some file systems (vfat, some shared folders of virtual machines) have no permissions. Every file
        // there looks open to all users, and each start would generate new keys.
        let mode = fs::metadata(path).map_err(unusable)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(StateError::Modeless { path: path.to_owned(), mode });
        }
    }
    Ok(())
}

/// Why the state folder cannot be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// The folder cannot be created or read.
    #[error("cannot create or open the state folder `{}`", path.display())]
    Unusable {
        /// The state folder's path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The folder's file system does not store permissions, so its content cannot be private.
    #[error(
        "the state folder `{}` has mode {mode:04o} even after `chmod 0700`: its file system keeps no permissions, so \
         keys in it would be everybody's; name a folder of another one with `--state`",
        path.display()
    )]
    Modeless {
        /// The state folder's path.
        path: PathBuf,
        /// The permission bits of its mode.
        mode: u32,
    },
    /// The folder belongs to another user, who could change the records.
    #[error("the state folder `{}` belongs to user {owner}, but this process runs as user {own}", path.display())]
    Foreign {
        /// The state folder's path.
        path: PathBuf,
        /// The owner's user number.
        owner: u32,
        /// This process's user number.
        own: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_made_private_and_an_open_one_is_closed() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = dir.path().join("a/b");
        prepare(&state).expect("the folder can be prepared");
        let mode = |path: &Path| fs::metadata(path).expect("the path exists").permissions().mode() & 0o777;
        assert_eq!(mode(&state), 0o700);
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).expect("opened");
        prepare(&state).expect("closed");
        assert_eq!(mode(&state), 0o700);
    }
}
