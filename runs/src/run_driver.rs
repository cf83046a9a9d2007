//! [`RunDriver`]: a process that works on runs. It holds a file lock as long as it lives. Other processes
//! with the same state folder can therefore tell that it has died, and need not wait until its leases expire.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::RunError;

/// The folder of the locks, in the state folder.
const DRIVERS_FOLDER: &str = "drivers";

/// The prefix of every name.
const PREFIX: &str = "driver_";

/// The random part of a name, in bytes. A name owns leases, so it must be unique among all processes of a store.
const RANDOM_BYTES: usize = 16;

/// The length of the hash over boot id and folder, in bytes.
const PLACE_BYTES: usize = 8;

/// The kernel's id of the current boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A process that works on runs.
#[derive(Debug)]
pub struct RunDriver {
    folder: PathBuf,
    /// The part of the name that all processes of this folder share.
    folder_id: String,
    name: String,
    /// The kernel releases the lock when the process ends in any way.
    _lock: File,
}

impl RunDriver {
    /// Registers this process in the state folder, and removes the files of processes that have died.
    ///
    /// # Errors
    /// [`RunError::LockFolder`], [`RunError::Random`].
    pub fn start(state: &Path) -> Result<Self, RunError> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(|source| RunError::Random { source })?;
        let folder = state.join(DRIVERS_FOLDER);
        let failed = |source| RunError::LockFolder { folder: folder.clone(), source };
        let folder_id = prepare(&folder).map_err(failed)?;
        let name = format!("{folder_id}_{}", hex::encode(random));
        let lock = lock_new_file(&folder, &name).map_err(failed)?;
        Ok(Self { folder, folder_id, name, _lock: lock })
    }

    /// Returns the name, which owns the leases of this process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process id of the named process, if it is alive and uses this state folder. The id is
    /// valid in the PID namespace of that process.
    #[must_use]
    pub fn process_id(state: &Path, name: &str) -> Option<u32> {
        // The name comes from a row of the store, so make sure that it cannot escape the folder of locks.
        let is_name = name.strip_prefix(PREFIX)?.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'_');
        let path = state.join(DRIVERS_FOLDER).join(name);
        if !is_name || !is_locked(&path).unwrap_or(false) {
            return None;
        }
        fs::read_to_string(path).ok()?.parse().ok()
    }

    /// Returns whether the process with this name is known to have died. Always returns `false` for a
    /// process of another machine or state folder.
    pub(crate) fn has_died(&self, name: &str) -> bool {
        let is_of_this_folder = name
            .strip_prefix(&self.folder_id)
            .and_then(|rest| rest.strip_prefix('_'))
            .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        // A file that cannot be examined proves nothing, so assume that it is locked.
        is_of_this_folder && name != self.name && !is_locked(&self.folder.join(name)).unwrap_or(true)
    }
}

impl Drop for RunDriver {
    fn drop(&mut self) {
        // Ignore the error: the next process removes the file.
        let _ = fs::remove_file(self.folder.join(&self.name));
    }
}

/// Creates the folder, and removes the files of processes that have died. Returns the prefix of its
/// processes' names.
fn prepare(folder: &Path) -> io::Result<String> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_process = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if is_process && !is_locked(&path)? {
            match fs::remove_file(&path) {
                // Another process removed the file first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    let metadata = fs::metadata(folder)?;
    // Another machine has another boot id, so its processes are never mistaken for dead processes of this
    // machine.
    let boot_id = fs::read_to_string(BOOT_ID)?;
    let folder_id = format!("{}\0{}\0{}", boot_id.trim(), metadata.dev(), metadata.ino());
    let hash = Sha256::digest(folder_id);
    Ok(format!("{PREFIX}{}", hex::encode(hash.get(..PLACE_BYTES).unwrap_or(&hash))))
}

/// Creates a file, and locks it. The file gets its name only when it is locked, so that no other process
/// mistakes it for that of a dead process.
fn lock_new_file(folder: &Path, name: &str) -> io::Result<File> {
    let unnamed = folder.join(format!(".{name}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unnamed)?;
    file.lock()?;
    // The id is for people. Only the lock shows whether the process is alive.
    write!(file, "{}", std::process::id())?;
    fs::rename(&unnamed, folder.join(name))?;
    Ok(file)
}

/// Returns whether a process holds the lock of this file, and `false` if the file is missing.
fn is_locked(path: &Path) -> io::Result<bool> {
    // The name may belong to a symlink or a FIFO. Do not follow the former, and do not block on the latter.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = match OpenOptions::new().write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_to_have_died_by_its_lock() {
        let state = tempfile::tempdir().expect("a folder");
        let own = RunDriver::start(state.path()).expect("starts");
        let other = RunDriver::start(state.path()).expect("starts");
        assert!(!own.has_died(other.name()) && !own.has_died(own.name()));
        let dead = format!("{}_00ff", own.folder_id);
        let file = state.path().join(DRIVERS_FOLDER).join(&dead);
        File::create(&file).expect("the file can be made");
        assert!(own.has_died(&dead));
        assert_eq!(RunDriver::process_id(state.path(), own.name()), Some(std::process::id()));
        assert_eq!(RunDriver::process_id(state.path(), &dead), None);
        let third = RunDriver::start(state.path()).expect("starts");
        assert!(!file.exists(), "the file of a dead process is removed");
        assert!(own.has_died(&dead) && third.has_died(&dead));
        let name = other.name().to_owned();
        assert!(!third.has_died(&name));
        drop(other);
        assert!(third.has_died(&name));
    }

    #[test]
    fn a_process_elsewhere_is_never_known_to_have_died() {
        let (here, there) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let here = RunDriver::start(here.path()).expect("starts");
        let name = RunDriver::start(there.path()).expect("starts").name().to_owned();
        assert!(!here.has_died(&name));
        for other in ["", "x", "driver_", &here.folder_id, &format!("{}_../x", here.folder_id)] {
            assert!(!here.has_died(other), "{other}");
        }
    }
}
