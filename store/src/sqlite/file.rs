//! Checks and creates the file of the database. The file and its companions must be private to the user, and
//! no links.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat},
    io::Errno,
    process::{geteuid, getpid},
};

use crate::error::{DatabaseFailure, OpenError, StoreError};

/// The names that SQLite adds for its companions of a database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Checks the folder and the file of a database, and creates an empty file if there is none.
///
/// SQLite opens the file by its path again. Only this user can change a private folder, so the file cannot be replaced
/// between the check and SQLite's open.
/// SQLite gives its companions the mode of the database.
pub(super) fn prepare(path: &Path) -> Result<(), StoreError> {
    let name = path.file_name().ok_or_else(|| not_regular(path))?;
    let folder_path = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder_path, flags, Mode::empty())
        .map_err(|error| open_error(folder_path, error))?;
    let stat = rustix::fs::fstat(&folder).map_err(|error| open_error(folder_path, error))?;
    check_private(folder_path, &stat, Mode::RWXU)?;
    // SQLite opens these files by name too, so a symlink with such a name would redirect it.
    for companion in COMPANIONS {
        let mut companion_name = OsString::from(name);
        companion_name.push(companion);
        check_file(&folder, &companion_name, &path.with_file_name(&companion_name))?;
    }
    // The loop also checks a file that another process has made in the meantime.
    while !check_file(&folder, name, path)? {
        make_file(&folder, name, path)?;
    }
    Ok(())
}

/// Checks a file in the folder. Returns whether it exists.
///
/// The file is not opened: when a process closes any descriptor of a file, it loses all its locks on that file, and
/// another store of this process may have some.
fn check_file(folder: impl AsFd, name: &std::ffi::OsStr, path: &Path) -> Result<bool, StoreError> {
    let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(open_error(path, error)),
    };
    // A second hard link could be in a folder that other users can access.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
        return Err(not_regular(path));
    }
    check_private(path, &stat, Mode::RUSR | Mode::WUSR)?;
    // Root could write the file anyway. Respect the mode.
    if stat.st_mode & Mode::WUSR.as_raw_mode() == 0 {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        return Err(StoreError::database("open its file", DatabaseFailure::ReadOnly, source));
    }
    Ok(true)
}

fn check_private(path: &Path, stat: &Stat, wanted: Mode) -> Result<(), OpenError> {
    let found = stat.st_mode & 0o7777;
    if stat.st_uid != geteuid().as_raw() || found & 0o077 != 0 {
        return Err(OpenError::NotPrivate {
            path: path.to_owned(),
            expected: wanted.as_raw_mode(),
            found,
            uid: stat.st_uid,
        });
    }
    Ok(())
}

/// Creates an empty file. It gets its name after its descriptor is closed, see [`check_file`].
fn make_file(folder: &OwnedFd, name: &std::ffi::OsStr, path: &Path) -> Result<(), StoreError> {
    let mut temporary = OsString::from(name);
    temporary.push(format!(".new-{}-{:?}", getpid().as_raw_nonzero(), std::thread::current().id()));
    let temporary = temporary.as_os_str();
    // An earlier process with the same id may have left this file.
    let _ = rustix::fs::unlinkat(folder, temporary, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let new = rustix::fs::openat(folder, temporary, flags, mode).map_err(|error| open_error(path, error))?;
    // `fchmod`, because `openat` applies the umask.
    let sync_result = rustix::fs::fchmod(&new, mode).and_then(|()| rustix::fs::fsync(&new));
    drop(new);
    // `rename`, not `link`: a link would give the file two names for a moment, and another process would refuse it.
    let named = sync_result
        .and_then(|()| rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE));
    // Report the first error, and ignore an error of the removal.
    if named.is_err() {
        let _ = rustix::fs::unlinkat(folder, temporary, AtFlags::empty());
    }
    match named {
        // Another process was faster.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(open_error(path, error)),
    }
    // The new name survives a power failure only if the directory is synced too.
    rustix::fs::fsync(folder).map_err(|error| open_error(path, error))
}

fn not_regular(path: &Path) -> StoreError {
    OpenError::NotRegular { path: path.to_owned() }.into()
}

fn open_error(path: &Path, error: Errno) -> StoreError {
    match error {
        Errno::ROFS => {
            StoreError::database("open its file", DatabaseFailure::ReadOnly, io::Error::from(error))
        }
        Errno::NOSPC | Errno::DQUOT => {
            StoreError::database("make its file", DatabaseFailure::Full, io::Error::from(error))
        }
        _ => OpenError::Io { path: PathBuf::from(path), source: error.into() }.into(),
    }
}
