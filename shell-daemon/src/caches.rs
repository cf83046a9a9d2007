//! The copies of the host's caches. Commands write the copies, and never the caches.
//!
//! A copy is kept in the state folder, and all sessions share it. When a session starts, entries that are new
//! or newer on the host are copied. Files that only commands have made are kept.
//!
//! Commands own a copy and can create symlinks in it. This module follows no symlink in a copy, so it writes
//! nothing outside.

use std::{
    ffi::{CStr, OsStr},
    fs::File,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    time::Instant,
};

use portcullis_confine::ProcessUser;
use portcullis_types::random_hex;
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps},
    io::Errno,
    process::{Gid, Uid},
};
use thiserror::Error;

use crate::{
    ShellError,
    limits::{CACHE_COPY_TIMEOUT, MAX_CACHE_BYTES, MAX_CACHE_ENTRIES},
    protected::open_below,
    toolchain::{self, SessionToolchain},
};

/// One cache of a session.
#[derive(Debug)]
pub(crate) struct SessionCache {
    /// The cache's path on the host.
    pub(crate) path: PathBuf,
    /// The cache itself.
    pub(crate) original: OwnedFd,
    /// The folder of the copy.
    pub(crate) copy: OwnedFd,
    /// The path of that folder.
    pub(crate) copy_path: PathBuf,
}

/// Brings the copies of all caches up to date. With an owner, all of a copy belongs to that user.
///
/// # Errors
/// [`ShellError::CacheUnusable`] if a cache cannot be read or is larger than the limits, or if its copy
/// cannot be written. The copy is then incomplete, and the next refresh continues it.
pub(crate) fn refresh(
    toolchain: &SessionToolchain,
    owner: Option<ProcessUser>,
) -> Result<Vec<SessionCache>, ShellError> {
    let mut budget = CopyBudget::new();
    toolchain.caches.iter().map(|path| refresh_one(path, &toolchain.copies, owner, &mut budget)).collect()
}

fn refresh_one(
    path: &Path,
    copies: &Path,
    owner: Option<ProcessUser>,
    budget: &mut CopyBudget,
) -> Result<SessionCache, ShellError> {
    let unusable = |error: io::Error| ShellError::CacheUnusable { path: path.to_owned(), source: error };
    let copy_path = copies.join(folder_name(path).map_err(unusable)?);
    let open = || -> io::Result<(OwnedFd, OwnedFd)> {
        let original = toolchain::open(path)?;
        make_private_folder(copies)?;
        make_private_folder(&copy_path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = rustix::fs::open(&copy_path, flags, Mode::empty())?;
        if let Some(owner) = owner {
            rustix::fs::fchown(&copy, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
        }
        Ok((original, copy))
    };
    let (original, copy) = open().map_err(unusable)?;
    // Sessions that start at the same time take turns. `flock` holds until the last duplicate of its
    // descriptor is closed, and the session gets a duplicate of `copy`, so the lock needs a separate
    // descriptor.
    let turn = open_below(&copy, Path::new("."), OFlags::DIRECTORY)
        .and_then(|turn| rustix::fs::flock(&turn, FlockOperation::LockExclusive).map(|()| turn))
        .map_err(|errno| unusable(errno.into()))?;
    CacheRefresh { original: &original, copy: &copy, owner, budget }.run().map_err(unusable)?;
    drop(turn);
    Ok(SessionCache { path: path.to_owned(), original, copy, copy_path })
}

/// A cache cannot be copied for a session. It is the cause of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum CacheError {
    #[error(
        "the caches have more than {MAX_CACHE_ENTRIES} files, or more than {} GiB of new ones; name folders below them",
        MAX_CACHE_BYTES >> 30
    )]
    TooLarge,
    #[error("the copy takes longer than {CACHE_COPY_TIMEOUT:?}; the next session continues it")]
    TooSlow,
    #[error("its path is not UTF-8")]
    NotUtf8,
    #[error("its path is longer than {MAX_NAME_BYTES} bytes")]
    LongPath,
}

impl From<CacheError> for io::Error {
    fn from(error: CacheError) -> Self {
        Self::other(error)
    }
}

struct CopyBudget {
    entries: usize,
    bytes: u64,
    deadline: Instant,
}

impl CopyBudget {
    fn new() -> Self {
        Self { entries: 0, bytes: 0, deadline: Instant::now() + CACHE_COPY_TIMEOUT }
    }

    /// Counts one file, folder or link, and the bytes to copy.
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > MAX_CACHE_ENTRIES || self.bytes > MAX_CACHE_BYTES {
            return Err(CacheError::TooLarge.into());
        }
        if Instant::now() >= self.deadline {
            return Err(CacheError::TooSlow.into());
        }
        Ok(())
    }
}

struct CacheRefresh<'a> {
    original: &'a OwnedFd,
    copy: &'a OwnedFd,
    owner: Option<ProcessUser>,
    budget: &'a mut CopyBudget,
}

impl CacheRefresh<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut folders = vec![PathBuf::from(".")];
        while let Some(folder) = folders.pop() {
            // The person's own programs may remove a folder at any time, and commands may replace one in the copy.
            let Ok(from) = open_below(self.original, &folder, OFlags::DIRECTORY) else { continue };
            let Ok(to) = open_below(self.copy, &folder, OFlags::DIRECTORY) else { continue };
            for entry in Dir::read_from(&from)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                let Ok(stat) = rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => {
                        self.budget.take(0)?;
                        self.make_folder(&to, name, &stat)?;
                        folders.push(folder.join(OsStr::from_bytes(name.to_bytes())));
                    }
                    FileType::Symlink => {
                        self.budget.take(0)?;
                        self.copy_link(&from, &to, name)?;
                    }
                    FileType::RegularFile => self.copy_file(&from, &to, name, &stat)?,
                    // A socket, FIFO or device is not content of a cache.
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn make_folder(&self, to: &OwnedFd, name: &CStr, stat: &Stat) -> io::Result<()> {
        match rustix::fs::mkdirat(to, name, permissions(stat) | Mode::RWXU) {
            Ok(()) => Ok(self.give(to, name)?),
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn copy_link(&self, from: &OwnedFd, to: &OwnedFd, name: &CStr) -> io::Result<()> {
        let Ok(target) = rustix::fs::readlinkat(from, name, Vec::new()) else { return Ok(()) };
        match rustix::fs::symlinkat(target, to, name) {
            Ok(()) => Ok(self.give(to, name)?),
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Copies a file that is missing in the copy, or newer on the host.
    fn copy_file(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr, stat: &Stat) -> io::Result<()> {
        match rustix::fs::statat(to, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(copied) => {
                let is_file = FileType::from_raw_mode(copied.st_mode) == FileType::RegularFile;
                // Keep a link or folder that a command has made under this name, and a file that is newer in
                // the copy.
                if !is_file || modified(&copied) >= modified(stat) {
                    return self.budget.take(0);
                }
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.budget.take(u64::try_from(stat.st_size).unwrap_or(0))?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Skip a file that this process may not read: the person's own programs do not read it either.
        let Ok(source) = rustix::fs::openat(from, name, flags, Mode::empty()) else { return Ok(()) };
        let stat = rustix::fs::fstat(&source)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        // Write to a temporary name first, because commands of other sessions may be reading the copy.
        let temporary = format!(".portcullis-{}", random_hex::<8>()?);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(to, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
        let copied = self.fill(source, &file, &stat).and_then(|()| {
            match rustix::fs::renameat(to, &temporary, to, name) {
                // A command has made a folder with this name. Keep the folder.
                Err(Errno::ISDIR) => Ok(rustix::fs::unlinkat(to, &temporary, AtFlags::empty())?),
                renamed => Ok(renamed?),
            }
        });
        if copied.is_err() {
            // Report the first error, not the error of this cleanup.
            let _ = rustix::fs::unlinkat(to, &temporary, AtFlags::empty());
        }
        copied
    }

    fn fill(&self, source: OwnedFd, file: &File, stat: &Stat) -> io::Result<()> {
        portcullis_undo::copy_content(source, file, MAX_CACHE_BYTES)?;
        if let Some(owner) = self.owner {
            rustix::fs::fchown(file, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
        }
        rustix::fs::fchmod(file, permissions(stat) | Mode::RUSR | Mode::WUSR)?;
        let (seconds, nanoseconds) = modified(stat);
        let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        Ok(rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time })?)
    }

    /// Makes the copy's owner, if there is one, the owner of an entry.
    fn give(&self, folder: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
        let Some(owner) = self.owner else { return Ok(()) };
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        rustix::fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }
}

fn make_private_folder(path: &Path) -> io::Result<()> {
    match rustix::fs::mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the name of a copy's folder: the cache's path with `%` for each slash.
fn folder_name(path: &Path) -> io::Result<String> {
    let text = path.to_str().ok_or(CacheError::NotUtf8)?;
    let name = text.replace('%', "%25").replace('/', "%");
    if name.len() > MAX_NAME_BYTES {
        return Err(CacheError::LongPath.into());
    }
    Ok(name)
}

/// Linux's `NAME_MAX`.
const MAX_NAME_BYTES: usize = 255;

fn permissions(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO)
}

fn modified(stat: &Stat) -> (i64, i64) {
    // The kernel's nanoseconds are below 1,000,000,000, so the conversion cannot fail.
    (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        time::{Duration, SystemTime},
    };

    use super::*;

    fn refreshed(cache: &Path, copies: &Path) -> Result<PathBuf, ShellError> {
        let toolchain = SessionToolchain {
            caches: vec![cache.to_owned()],
            copies: copies.to_owned(),
            ..SessionToolchain::default()
        };
        refresh(&toolchain, None).map(|mut caches| caches.remove(0).copy_path)
    }

    #[test]
    fn a_copy_gets_what_is_new_and_keeps_what_commands_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cache, copies) = (folder.path().join("cache"), folder.path().join("copies"));
        fs::create_dir_all(cache.join("a/b")).expect("the folder can be made");
        fs::write(cache.join("a/b/file"), "one").expect("written");
        fs::write(cache.join("run"), "#!").expect("written");
        fs::set_permissions(cache.join("run"), fs::Permissions::from_mode(0o755)).expect("set");
        symlink("a/b/file", cache.join("link")).expect("linked");
        let copy = refreshed(&cache, &copies).expect("a copy");
        assert_eq!(fs::read_to_string(copy.join("link")).expect("read"), "one");
        assert_eq!(fs::metadata(copy.join("run")).expect("a file").permissions().mode() & 0o777, 0o755);

        // A command makes one file, and makes another newer than the host's.
        fs::write(copy.join("a/own"), "theirs").expect("written");
        fs::write(copy.join("run"), "theirs").expect("written");
        // On the host, one file is new and one is newer.
        fs::write(cache.join("a/new"), "two").expect("written");
        let file = fs::File::options().write(true).open(cache.join("a/b/file")).expect("opened");
        fs::write(cache.join("a/b/file"), "newer").expect("written");
        file.set_modified(SystemTime::now() + Duration::from_secs(9)).expect("set");
        assert_eq!(refreshed(&cache, &copies).expect("a copy"), copy);
        let read = |path: &str| fs::read_to_string(copy.join(path)).expect(path);
        assert_eq!(
            (read("a/own"), read("run"), read("a/new")),
            ("theirs".into(), "theirs".into(), "two".into())
        );
        assert_eq!(read("a/b/file"), "newer");
        assert_eq!(fs::read_to_string(cache.join("run")).expect("read"), "#!");
        assert!(!cache.join("a/own").exists());
        let names = fs::read_dir(&copy).expect("read").map(|entry| entry.expect("read").file_name());
        assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with(".portcullis")));
    }

    #[test]
    fn a_copy_is_bounded_in_files_bytes_and_time() {
        let mut budget = CopyBudget { entries: MAX_CACHE_ENTRIES - 1, ..CopyBudget::new() };
        assert!(budget.take(0).is_ok() && budget.take(0).is_err());
        let mut budget = CopyBudget::new();
        assert!(budget.take(MAX_CACHE_BYTES).is_ok() && budget.take(1).is_err());
        assert!(CopyBudget::new().take(u64::MAX).is_err());
        let mut budget = CopyBudget { deadline: Instant::now(), ..CopyBudget::new() };
        let error = budget.take(0).expect_err("late").to_string();
        assert!(error.contains("60s"), "{error}");
    }

    #[test]
    fn a_path_too_long_for_a_folder_is_refused() {
        let error = folder_name(Path::new(&format!("/{}", "a".repeat(MAX_NAME_BYTES)))).expect_err("long");
        assert!(error.to_string().contains("255"), "{error}");
        // Two paths never share a copy.
        assert_eq!(folder_name(Path::new("/a/b")).expect("a name"), "%a%b");
        assert_eq!(folder_name(Path::new("/a%b")).expect("a name"), "%a%25b");
    }

    #[test]
    fn links_that_commands_put_into_a_copy_lead_nowhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cache, copies) = (folder.path().join("cache"), folder.path().join("copies"));
        let outside = folder.path().join("outside");
        fs::create_dir_all(cache.join("a")).expect("the folder can be made");
        fs::create_dir(&outside).expect("the folder can be made");
        fs::write(outside.join("kept"), "kept").expect("written");
        let copy = refreshed(&cache, &copies).expect("a copy");
        fs::remove_dir(copy.join("a")).expect("removed");
        symlink(&outside, copy.join("a")).expect("linked");
        symlink(outside.join("kept"), copy.join("file")).expect("linked");
        fs::create_dir(copy.join("folder")).expect("the folder can be made");
        for (path, text) in [("a/file", "x"), ("file", "x"), ("folder", "x")] {
            fs::write(cache.join(path), text).expect("written");
        }
        refreshed(&cache, &copies).expect("a copy");
        assert_eq!(fs::read_to_string(outside.join("kept")).expect("read"), "kept");
        assert!(!outside.join("file").exists());
        assert!(copy.join("folder").is_dir());
        // The folder of the copy itself is replaced.
        fs::remove_dir_all(&copy).expect("removed");
        symlink(&outside, &copy).expect("linked");
        let error = refreshed(&cache, &copies).expect_err("a link");
        assert!(error.to_string().contains("cache"), "{error}");
        assert!(!outside.join("a").exists());
    }
}
