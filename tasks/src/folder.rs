//! `TaskFolder`: the folder of tasks, with a subfolder for each state, and the file operations on it.
//!
//! All files are reached through descriptors of folders, and symlinks are not followed. A file is replaced
//! atomically: the new content is on the disk before it gets the name. After the exchange, the replaced
//! content is compared with the content that the change was based on. So neither a crash nor a concurrent
//! edit loses a line.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, fchmod, flock, fstat, fsync,
        mkdirat, open, openat, renameat, renameat_with, statat, unlinkat,
    },
    io::Errno,
};

use crate::{
    error::{FileError, TaskFolderError},
    limits::MAX_FILE_BYTES,
    states::TaskStates,
};

/// A folder of tasks that this process has locked.
#[derive(Debug)]
pub(crate) struct TaskFolder {
    /// Holds the lock until it is closed.
    root: OwnedFd,
    path: PathBuf,
}

/// Metadata that tells two versions of a file apart without reading them. The integers are wide, because the
/// kernel's types differ between architectures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: i128,
    inode: i128,
    size: i128,
    modified: (i128, i128),
    changed: (i128, i128),
}

/// How a replacement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// The file has the new content.
    Done,
    /// The file had other content than the change was based on. It stays as others left it.
    ChangedMeanwhile,
}

impl TaskFolder {
    /// Opens the folder, creates the missing folders of states, and takes the lock.
    pub(crate) fn open(path: &Path, states: &TaskStates) -> Result<Self, TaskFolderError> {
        let failed = |source: Errno| TaskFolderError::Open { path: path.to_owned(), source: source.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(path, flags, Mode::empty()).map_err(failed)?;
        // Lock the folder itself: a lock file could be deleted and recreated, and two processes could then
        // each lock one.
        match flock(&root, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(TaskFolderError::Busy { path: path.to_owned() }),
            Err(error) => return Err(failed(error)),
        }
        let folder = Self { root, path: path.to_owned() };
        for state in states.folders() {
            // The operator's umask decides who else may read the tasks.
            let mkdir_result = match mkdirat(&folder.root, state, Mode::from_raw_mode(0o777)) {
                // An existing name must be a directory, not a symlink.
                Ok(()) | Err(Errno::EXIST) => folder.state(state).map(drop),
                Err(error) => Err(error),
            };
            mkdir_result.map_err(|error| state_error(state, error))?;
        }
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the sorted names of a state's task files, each with its version. A version is missing if the
    /// file was removed in the meantime. Omits names that begin with a dot.
    pub(crate) fn list(&self, state: &str) -> Result<Vec<(String, Option<FileVersion>)>, TaskFolderError> {
        let failed = |error| state_error(state, error);
        let handle = self.state(state).map_err(failed)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&handle).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let extension = name.rsplit_once('.').map(|(_, extension)| extension);
            let is_task = !name.starts_with('.') && matches!(extension, Some("md" | "markdown"));
            if is_task && entry.file_type() != FileType::Directory {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        let version = |name: &str| {
            statat(&handle, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| FileVersion::of(&stat))
        };
        let with_version = |name: String| {
            let version = version(&name);
            (name, version)
        };
        Ok(names.into_iter().map(with_version).collect())
    }

    /// Returns the version of a file without opening it.
    pub(crate) fn version(&self, state: &str, name: &str) -> Result<FileVersion, FileError> {
        let handle = self.state(state).map_err(|error| io_error("open the folder", error))?;
        let stat = statat(&handle, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| io_error("read the file", error))?;
        Ok(FileVersion::of(&stat))
    }

    /// Reads a file.
    pub(crate) fn read(&self, state: &str, name: &str) -> Result<(String, FileVersion), FileError> {
        let handle = self.state(state).map_err(|error| io_error("open the folder", error))?;
        read_file(&handle, name).map(|(text, stat)| (text, FileVersion::of(&stat)))
    }

    /// Replaces a file's content if it is still `before`.
    pub(crate) fn replace(
        &self,
        state: &str,
        name: &str,
        before: &str,
        after: &str,
    ) -> Result<Replaced, FileError> {
        let handle = self.state(state).map_err(|error| io_error("open the folder", error))?;
        let (current, stat) = read_file(&handle, name)?;
        if current != before {
            return Ok(Replaced::ChangedMeanwhile);
        }
        let temporary = Temporary::write(&handle, after, Mode::from_raw_mode(stat.st_mode & 0o777))?;
        let failed = |error| io_error("replace the file", error);
        let exchange = || renameat_with(&handle, &*temporary.name, &handle, name, RenameFlags::EXCHANGE);
        let is = |name: &str, text: &str| read_file(&handle, name).is_ok_and(|(found, _)| found == text);
        let replaced = match exchange() {
            // After the exchange, the temporary name holds the previous content, which may be newer than the
            // version that was read.
            Ok(()) if is(&temporary.name, before) => Replaced::Done,
            Ok(()) => {
                exchange().map_err(failed)?;
                if !is(&temporary.name, after) {
                    // Another version was saved between the two exchanges. Keep both versions.
                    return Err(FileError::EditKept { file: temporary.keep() });
                }
                Replaced::ChangedMeanwhile
            }
            Err(Errno::NOENT) => return Err(FileError::Gone),
            // The file system does not support the exchange. A plain rename can lose an edit that is saved in
            // this moment.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                renameat(&handle, &*temporary.name, &handle, name).map_err(failed)?;
                Replaced::Done
            }
            Err(error) => return Err(failed(error)),
        };
        // Remove the temporary file first, so that the sync covers its removal too.
        drop(temporary);
        fsync(&handle).map_err(failed)?;
        Ok(replaced)
    }

    /// Moves a file to another state if it is still the version that was read. Returns its name there, which
    /// differs if the name was taken. Returns `None` if the file has changed.
    pub(crate) fn move_file(
        &self,
        name: &str,
        (from, version): (&str, FileVersion),
        to: &str,
    ) -> Result<Option<String>, FileError> {
        let failed = |error| io_error("move the file", error);
        let (source, target) = (self.state(from).map_err(failed)?, self.state(to).map_err(failed)?);
        let is_same = |folder: &OwnedFd, name: &str| {
            statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileVersion::of(&stat).is_content_of(&version))
        };
        if !is_same(&source, name) {
            return Ok(None);
        }
        for number in 1..=MAX_SAME_NAMES {
            let new_name = numbered(name, number);
            match renameat_with(&source, name, &target, &*new_name, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    if !is_same(&target, &new_name) {
                        // A new version was saved in the meantime. It has not been read, so move it back.
                        renameat_with(&target, &*new_name, &source, name, RenameFlags::NOREPLACE)
                            .map_err(failed)?;
                        return Ok(None);
                    }
                    // Sync both folders, the target first, so that a crash cannot lose the file.
                    fsync(&target).map_err(failed)?;
                    fsync(&source).map_err(failed)?;
                    return Ok(Some(new_name));
                }
                Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => return Err(FileError::Gone),
                Err(error) => return Err(failed(error)),
            }
        }
        Err(FileError::NoFreeName { folder: to.to_owned() })
    }

    /// Returns the names of temporary files that an interrupted change left in a state.
    pub(crate) fn leftover_files(&self, state: &str) -> Vec<String> {
        let Ok(entries) = self.state(state).and_then(Dir::read_from) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().map(str::to_owned).ok());
        names.filter(|name| name.starts_with(TEMPORARY)).collect()
    }

    fn state(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.root, name, flags, Mode::empty())
    }
}

impl FileVersion {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev.into(),
            inode: stat.st_ino.into(),
            size: stat.st_size.into(),
            modified: (stat.st_mtime.into(), stat.st_mtime_nsec.into()),
            changed: (stat.st_ctime.into(), stat.st_ctime_nsec.into()),
        }
    }

    /// Returns whether both are the same content of the same file. A rename changes only the change time.
    fn is_content_of(&self, other: &Self) -> bool {
        Self { changed: other.changed, ..*self } == *other
    }

    /// Returns the modification time, in seconds and nanoseconds since 1970.
    pub(crate) fn modified(&self) -> (i128, i128) {
        self.modified
    }
}

/// A temporary file. It is removed on drop.
struct Temporary<'f> {
    folder: &'f OwnedFd,
    name: String,
    is_kept: bool,
}

impl<'f> Temporary<'f> {
    /// Writes a new file, and flushes it to the disk.
    fn write(folder: &'f OwnedFd, text: &str, mode: Mode) -> Result<Self, FileError> {
        let failed = |error| io_error("write a temporary file", error);
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| FileError::Io {
            operation: "get random bytes",
            source: io::Error::other(error),
        })?;
        let name = format!("{TEMPORARY}{}", hex::encode(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(folder, &*name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let temporary = Self { folder, name, is_kept: false };
        fchmod(&handle, mode).map_err(failed)?;
        let mut file = File::from(handle);
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|source| FileError::Io { operation: "write a temporary file", source })?;
        Ok(temporary)
    }

    /// Keeps the file, and returns its name.
    fn keep(mut self) -> String {
        self.is_kept = true;
        self.name.clone()
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            // Ignore the error: after a plain rename, the name no longer exists.
            let _ = unlinkat(self.folder, &*self.name, AtFlags::empty());
        }
    }
}

/// The prefix of the names of temporary files. It begins with a dot, so they are not tasks.
const TEMPORARY: &str = ".portcullis-tmp-";

/// The maximum number of files with the same base name in one state.
const MAX_SAME_NAMES: u32 = 1_000;

/// Returns `name.md`, `name-2.md`, `name-3.md`, …
fn numbered(name: &str, number: u32) -> String {
    match name.rsplit_once('.') {
        _ if number == 1 => name.to_owned(),
        Some((stem, extension)) => format!("{stem}-{number}.{extension}"),
        None => format!("{name}-{number}"),
    }
}

fn read_file(folder: &OwnedFd, name: &str) -> Result<(String, Stat), FileError> {
    let failed = |error| io_error("read the file", error);
    // `NONBLOCK`: opening a FIFO must not block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let handle = openat(folder, name, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&handle).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FileError::NotAFile);
    }
    // Refuse a large file before reading it.
    if usize::try_from(stat.st_size).is_ok_and(|size| size > MAX_FILE_BYTES) {
        return Err(FileError::TooLarge);
    }
    let mut bytes = Vec::new();
    let limit = MAX_FILE_BYTES as u64 + 1;
    File::from(handle)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|source| FileError::Io { operation: "read the file", source })?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(FileError::TooLarge);
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| FileError::NotText { position: error.utf8_error().valid_up_to() })?;
    Ok((text, stat))
}

fn io_error(operation: &'static str, error: Errno) -> FileError {
    match error {
        Errno::LOOP => FileError::Link,
        Errno::NOENT => FileError::Gone,
        Errno::NXIO => FileError::NotAFile,
        error => FileError::Io { operation, source: error.into() },
    }
}

fn state_error(state: &str, error: Errno) -> TaskFolderError {
    TaskFolderError::State { state: state.to_owned(), source: error.into() }
}

#[cfg(test)]
mod tests;
