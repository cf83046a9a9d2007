//! The state of a path in a mount, and the operations on paths. All of them stay beneath the mount's
//! directory, and follow no symlinks (`openat2(2)`, `RESOLVE_NO_SYMLINKS`).

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    sync::Arc,
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

/// The number of attempts to resolve a path while directories are being renamed (`openat2(2)`, `EAGAIN`).
const RESOLVE_ATTEMPTS: u32 = 16;

/// The permission bits that are recorded and restored. Set-id bits and the sticky bit are excluded.
const PERMISSIONS: u32 = 0o777;

/// A path below a mount, as its components joined by `/`. It never contains an empty component, `.` or `..`.
/// The path of the mount itself is empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountPath(Vec<u8>);

impl MountPath {
    /// Joins components to a path. `None` if a component is empty, `.`, `..`, or contains `/` or NUL.
    pub fn from_components<'c>(components: impl IntoIterator<Item = &'c [u8]>) -> Option<Self> {
        let mut path = Vec::new();
        for component in components {
            let is_special = matches!(component, b"" | b"." | b"..");
            if is_special || component.contains(&b'/') || component.contains(&0) {
                return None;
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(component);
        }
        Some(Self(path))
    }

    /// Returns the path of an entry of this directory. `None` as in [`Self::from_components`].
    #[must_use]
    pub fn child(&self, name: &[u8]) -> Option<Self> {
        Self::from_components(self.components().chain([name]))
    }

    /// Returns the path of the directory that contains this path. `None` for the mount itself.
    pub(crate) fn parent(&self) -> Option<Self> {
        if self.0.is_empty() {
            return None;
        }
        let end = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(Self(self.0[..end].to_vec()))
    }

    /// The last component; empty for the mount itself.
    pub(crate) fn name(&self) -> &OsStr {
        let start = self.0.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        OsStr::from_bytes(&self.0[start..])
    }

    pub(crate) fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|component| !component.is_empty())
    }

    fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(if self.0.is_empty() { b"." } else { &self.0 })
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", OsStr::from_bytes(&self.0))
    }
}

/// The bytes of a name in JSON: a string if they are UTF-8, else a list of numbers.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NameText {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Vec<u8>> for NameText {
    fn from(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|error| Self::Bytes(error.into_bytes()), Self::Text)
    }
}

impl NameText {
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Serialize for MountPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        NameText::from(self.0.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MountPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = NameText::deserialize(deserializer)?.into_bytes();
        let components = bytes.split(|byte| *byte == b'/');
        let path = if bytes.is_empty() { Some(Self(Vec::new())) } else { Self::from_components(components) };
        path.ok_or_else(|| serde::de::Error::custom("a path has a component that no file has"))
    }
}

/// The state of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathState {
    /// Nothing exists there.
    Absent,
    /// A regular file.
    File(FileMetadata),
    /// A directory, without its entries.
    Directory {
        /// The permission bits.
        mode: u32,
    },
    /// A symlink, which is not followed.
    Link {
        /// The target of the symlink.
        #[serde(with = "link_text")]
        target: OsString,
    },
    /// A FIFO, socket or device, which is never restored.
    Other,
}

/// The metadata by which a changed file is recognized. The inode is not included, because a restored
/// file is a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMetadata {
    /// The size in bytes.
    pub size: u64,
    /// The permission bits.
    pub mode: u32,
    /// The modification time: seconds since the epoch, and nanoseconds.
    pub modified: (i64, u64),
}

mod link_text {
    use std::os::unix::ffi::OsStringExt as _;

    use super::{NameText, OsString};
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &OsString, serializer: S) -> Result<S::Ok, S::Error> {
        NameText::from(text.clone().into_vec()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OsString, D::Error> {
        Ok(OsString::from_vec(NameText::deserialize(deserializer)?.into_bytes()))
    }
}

/// A mount's directory.
#[derive(Debug, Clone)]
pub struct MountRoot {
    name: Arc<str>,
    directory: Arc<OwnedFd>,
}

/// The user and the group that own a file. They are restored if this process may do so, and a difference does
/// not count as a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileOwner {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// The identity of a mount's directory, which a record stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RootIdentity {
    device: u64,
    inode: u64,
}

impl MountRoot {
    /// Creates a mount with this name and directory. A descriptor opened with `O_PATH` suffices.
    #[must_use]
    pub fn new(name: &str, directory: Arc<OwnedFd>) -> Self {
        Self { name: name.into(), directory }
    }

    /// The mount's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Formats a path in the mount, as tools name it.
    pub(crate) fn guest_path(&self, path: &MountPath) -> String {
        guest_path(&self.name, path)
    }

    pub(crate) fn identity(&self) -> io::Result<RootIdentity> {
        let stat = rustix::fs::fstat(&self.directory)?;
        Ok(RootIdentity { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Returns the state of a path with its owner, as in [`Self::state`].
    pub(crate) fn state_with_owner(&self, path: &MountPath) -> io::Result<(PathState, Option<FileOwner>)> {
        let handle = match self.open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(handle) => handle,
            // `LOOP`: a symlink takes the place of a folder on the path. A symlink at the
            // end is opened itself.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok((PathState::Absent, None)),
            Err(errno) => return Err(errno.into()),
        };
        let stat = rustix::fs::fstat(&handle)?;
        let state = state_of(&stat, || Ok(rustix::fs::readlinkat(&handle, "", Vec::new())?))?;
        Ok((state, Some(FileOwner { user: stat.st_uid, group: stat.st_gid })))
    }

    /// Returns the state of a path. A path below a non-directory is absent.
    pub(crate) fn state(&self, path: &MountPath) -> io::Result<PathState> {
        Ok(self.state_with_owner(path)?.0)
    }

    /// Opens a path beneath the mount.
    pub(crate) fn open(&self, path: &MountPath, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        open_beneath(self.directory.as_fd(), path.as_os_str(), flags, mode)
    }

    /// Opens the directory that contains a path, and returns the path's last component.
    pub(crate) fn parent_of<'p>(&self, path: &'p MountPath) -> Result<(OwnedFd, &'p OsStr), Errno> {
        let parent = path.parent().ok_or(Errno::BUSY)?;
        Ok((self.open(&parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?, path.name()))
    }

    /// Returns the names in a directory, unordered.
    pub(crate) fn names(&self, path: &MountPath) -> io::Result<Vec<Vec<u8>>> {
        let directory = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// Formats a path in a mount, as tools name it.
pub(crate) fn guest_path(mount: &str, path: &MountPath) -> String {
    format!("/{mount}/{path}")
}

fn state_of(stat: &Stat, link_text: impl FnOnce() -> io::Result<std::ffi::CString>) -> io::Result<PathState> {
    let mode = stat.st_mode & PERMISSIONS;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => PathState::File(FileMetadata {
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            mode,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
        }),
        FileType::Directory => PathState::Directory { mode },
        FileType::Symlink => PathState::Link { target: OsString::from_vec(link_text()?.into_bytes()) },
        _ => PathState::Other,
    })
}

fn open_beneath(base: BorrowedFd<'_>, path: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    for _ in 0..RESOLVE_ATTEMPTS {
        match rustix::fs::openat2(base, path, flags | OFlags::CLOEXEC, mode, beneath) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::fs::symlink,
        path::Path,
    };

    use super::*;

    fn root(folder: &Path) -> MountRoot {
        MountRoot::new("m", Arc::new(File::open(folder).expect("opens").into()))
    }

    fn path(text: &str) -> MountPath {
        MountPath::from_components(text.split('/').map(str::as_bytes)).expect("a path")
    }

    #[test]
    fn paths_have_no_special_components() {
        for components in [&[""][..], &["."], &["a", ".."], &["a/b"], &["a\0"]] {
            assert_eq!(MountPath::from_components(components.iter().map(|part| part.as_bytes())), None);
        }
        for text in ["\"..\"", "\"a//b\"", "\"/a\"", "[46,46]", "\"a/\""] {
            assert!(serde_json::from_str::<MountPath>(text).is_err(), "{text}");
        }
        for bytes in [&b"a/b"[..], b"a/\xff", b""] {
            let path = MountPath(bytes.to_vec());
            let json = serde_json::to_string(&path).expect("serializes");
            assert_eq!(serde_json::from_str::<MountPath>(&json).expect("a path"), path);
        }
        assert_eq!(
            (path("a/b").parent(), path("a").parent()),
            (Some(path("a")), Some(MountPath(Vec::new())))
        );
        assert_eq!(path("a/b").name(), OsStr::new("b"));
    }

    #[test]
    fn a_link_is_seen_and_never_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("real")).expect("the folder can be made");
        fs::write(folder.path().join("real/file"), "text").expect("written");
        symlink("real", folder.path().join("alias")).expect("linked");
        let root = root(folder.path());
        assert_eq!(root.state(&path("alias")).expect("seen"), PathState::Link { target: "real".into() });
        assert!(
            matches!(root.state(&path("real/file")).expect("seen"), PathState::File(metadata) if metadata.size == 4)
        );
        assert_eq!(root.state(&path("alias/file")).expect("seen"), PathState::Absent);
        assert_eq!(root.state(&path("real/file/below")).expect("seen"), PathState::Absent);
        assert!(root.parent_of(&path("alias/file")).is_err());
    }
}
