//! Reads module files: the files of a folder relative to its descriptor, and single files by path. The bytes
//! are read into memory, so later changes to a file have no effect.

use std::{
    fs::{File, OpenOptions},
    io::Read,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use portcullis_confine::trusted::{self, TrustError};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use super::{ModuleError, ModuleFolderError};
use crate::sandbox::MAX_MODULE_BYTES;

/// The maximum number of modules in a folder. Every start loads and describes each of them.
const MAX_MODULES: usize = 256;

/// The maximum number of entries, of any kind, that are read from a folder of modules.
const MAX_ENTRIES: usize = 4096;

/// The extension of a module's file name.
const SUFFIX: &str = ".wasm";

/// A file name that is not UTF-8, in lossy form.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NotUtf8(pub(crate) String);

/// A folder of modules.
#[derive(Debug)]
pub(crate) struct ModulesFolder {
    handle: File,
    names: Vec<Result<String, NotUtf8>>,
}

impl ModulesFolder {
    /// Opens a folder and lists its modules, sorted: names that end with `.wasm` and do not start with a dot.
    pub(crate) fn open(path: &Path) -> Result<Self, ModuleFolderError> {
        let unusable = |source| ModuleFolderError::Unusable { path: path.to_owned(), source };
        let too_many = |what, limit| ModuleFolderError::TooMany { path: path.to_owned(), what, limit };
        match trusted::judge_folder(path) {
            Ok(()) => {}
            Err(TrustError::Unusable { source, .. }) => return Err(unusable(source)),
            Err(TrustError::Kind { .. }) => return Err(unusable(Errno::NOTDIR.into())),
            Err(source) => return Err(ModuleFolderError::Untrusted { path: path.to_owned(), source }),
        }
        // Check and open do not race: the check covers every folder on the path, so other users cannot
        // replace any.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| unusable(errno.into()))?;
        let listing = rustix::fs::Dir::read_from(&handle).map_err(|errno| unusable(errno.into()))?;
        let mut names = Vec::new();
        for (index, entry) in listing.enumerate() {
            // Two more than the limit, for `.` and `..`.
            if index == MAX_ENTRIES + 2 {
                return Err(too_many("entries", MAX_ENTRIES));
            }
            let entry = entry.map_err(|errno| unusable(errno.into()))?;
            let name = entry.file_name().to_bytes();
            if !name.ends_with(SUFFIX.as_bytes()) || name.starts_with(b".") {
                continue;
            }
            if names.len() == MAX_MODULES {
                return Err(too_many("modules", MAX_MODULES));
            }
            names.push(match std::str::from_utf8(name) {
                Ok(name) => Ok(name.to_owned()),
                Err(_cause) => Err(NotUtf8(String::from_utf8_lossy(name).into_owned())),
            });
        }
        names.sort();
        Ok(Self { handle: handle.into(), names })
    }

    /// The names of the modules.
    pub(crate) fn names(&self) -> impl Iterator<Item = Result<&str, &NotUtf8>> {
        self.names.iter().map(|name| name.as_deref())
    }

    /// Reads one of the folder's modules.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, ModuleError> {
        // Non-blocking, so that opening a FIFO of this name returns immediately.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(self.handle.as_fd(), name, flags, Mode::empty()) {
            Ok(file) => {
                let file = File::from(file);
                if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                    trusted::judge_file(file.as_fd(), Path::new(name)).map_err(ModuleError::Untrusted)?;
                }
                read(file)
            }
            Err(Errno::LOOP) => Err(ModuleError::Link),
            // Opening a socket fails with `ENXIO`.
            Err(Errno::NXIO) => Err(ModuleError::NotAFile),
            Err(errno) => Err(ModuleError::Read { source: errno.into() }),
        }
    }
}

/// Reads a module by a path that a person gave. Symlinks are followed.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, ModuleError> {
    // Non-blocking, so that opening a FIFO returns immediately.
    let non_blocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(non_blocking).open(path);
    read(file.map_err(|source| ModuleError::Read { source })?)
}

fn read(file: File) -> Result<Vec<u8>, ModuleError> {
    let unreadable = |source| ModuleError::Read { source };
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(ModuleError::NotAFile);
    }
    let mut bytes = Vec::new();
    file.take(MAX_MODULE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MAX_MODULE_BYTES {
        return Err(ModuleError::TooLarge { limit: MAX_MODULE_BYTES });
    }
    Ok(bytes)
}

/// Resolves the path of the modules folder that a policy names: absolute, or relative to the policy file.
pub(crate) fn modules_path(dir: &str, policy: Option<&Path>) -> Result<PathBuf, ModuleFolderError> {
    let dir = PathBuf::from(dir);
    if dir.is_absolute() {
        return Ok(dir);
    }
    match policy.map(|file| file.parent().unwrap_or(Path::new(""))) {
        Some(base) => Ok(base.join(dir)),
        None => Err(ModuleFolderError::NoBase { path: dir }),
    }
}
