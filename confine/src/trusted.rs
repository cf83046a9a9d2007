//! Opens a file that grants rights, such as a policy, only if no user except root and this process's
//! user can change the file or any folder or symlink on its path.
//!
//! The walk along the path uses handles, and judges each handle before it opens the next component below it.
//! The file is judged through the descriptor that is then read (no TOCTOU race). On a read-only file system,
//! such as a container's mounted configuration, no user here can change anything, so permissions are ignored.

mod open_first;
mod readers;

use std::{
    ffi::{OsStr, OsString},
    fmt,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat, StatVfsMountFlags},
    io::Errno,
};

use crate::bounded;

pub use open_first::open_first;
pub use readers::{GroupReaders, judge_readers};

/// The kind of an object on a file's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathObject {
    /// The file itself.
    File,
    /// A folder on the way to the file.
    Folder,
    /// A symbolic link.
    Link,
}

impl fmt::Display for PathObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Folder => "folder",
            Self::Link => "link",
        })
    }
}

/// The reason why a file is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file, or a folder or symlink on its path, cannot be opened or examined.
    #[error("cannot open `{}`", path.display())]
    Unusable {
        /// The path that cannot be opened.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The file does not exist, and another user could have removed it or could create it.
    #[error("there is no `{}`", path.display())]
    Missing {
        /// The path of the file.
        path: PathBuf,
        /// The part of the path that another user can change.
        #[source]
        cause: Box<TrustError>,
    },
    /// The end of the path is not a regular file, or not a folder, as the caller requires.
    #[error("`{}` is not a {expected}", path.display())]
    Kind {
        /// The path of the refused object.
        path: PathBuf,
        /// The required kind: "regular file" or "folder".
        expected: &'static str,
    },
    /// Another user owns the object and could change it.
    #[error(
        "the {object} `{}` belongs to user {owner}, who could change it; it must belong to root or to this program's user; fix it with `chown {own_uid} {}`",
        path.display(), path.display()
    )]
    Foreign {
        /// The kind of the object.
        object: PathObject,
        /// The path of the refused object.
        path: PathBuf,
        /// The owner's user number.
        owner: u32,
        /// The number of this process's user.
        own_uid: u32,
    },
    /// Other users may write to the object.
    #[error(
        "the {object} `{}` can be written by {writers} (mode {mode:04o}), so others could change it; fix it with `chmod {remedy} {}`",
        path.display(), path.display()
    )]
    Writable {
        /// The kind of the object.
        object: PathObject,
        /// The path of the refused object.
        path: PathBuf,
        /// The permission bits of the object's mode.
        mode: u32,
        /// The users who may write the object.
        writers: &'static str,
        /// The `chmod` mode that forbids it.
        remedy: &'static str,
    },
    /// Other users may read the file, which holds a secret.
    #[error(
        "the file `{}` can be read by {by} (mode {mode:04o}), and contains a secret; fix it with `chmod {remedy} {}`",
        path.display(), path.display()
    )]
    Readable {
        /// The path of the refused file.
        path: PathBuf,
        /// The permission bits of the file's mode.
        mode: u32,
        /// The users who may read the file.
        by: &'static str,
        /// The `chmod` mode that forbids it.
        remedy: &'static str,
    },
}

impl TrustError {
    /// Returns whether the file does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Missing { .. } => true,
            Self::Unusable { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Kind { .. } | Self::Foreign { .. } | Self::Writable { .. } | Self::Readable { .. } => false,
        }
    }
}

/// Opens a file for reading if only root and this process's user can change it. The open does not block.
///
/// # Errors
/// [`TrustError`] if the file cannot be opened, is not a regular file, or another user can change it or its path. If
/// the file does not exist, [`TrustError::is_missing`] is true, even if another user can change its path.
pub fn open_file(path: &Path) -> Result<File, TrustError> {
    let mut doubt = None;
    match follow_path(path, &mut doubt) {
        Ok((PathEnd::File(file), end_path)) => {
            judge(file.as_fd(), PathObject::File, &end_path)?;
            Ok(file.into())
        }
        Ok((PathEnd::Folder | PathEnd::Other, end_path)) => {
            Err(doubt.unwrap_or(TrustError::Kind { path: end_path, expected: FILE }))
        }
        Err(error) => Err(match doubt {
            Some(doubt) if error.is_missing() => {
                TrustError::Missing { path: path.to_owned(), cause: Box::new(doubt) }
            }
            doubt => doubt.unwrap_or(error),
        }),
    }
}

/// Checks that only root and this process's user can change a folder's entries and its path.
///
/// # Errors
/// As in [`open_file`], but for a folder.
pub fn judge_folder(path: &Path) -> Result<(), TrustError> {
    let mut doubt = None;
    let path_end = follow_path(path, &mut doubt);
    match (doubt, path_end?) {
        (Some(doubt), _) => Err(doubt),
        (None, (PathEnd::Folder, _)) => Ok(()),
        (None, (PathEnd::File(_) | PathEnd::Other, end_path)) => {
            Err(TrustError::Kind { path: end_path, expected: FOLDER })
        }
    }
}

/// Checks that only root and this process's user can change an open regular file, whatever its path.
///
/// # Errors
/// As in [`open_file`].
pub fn judge_file(file: BorrowedFd<'_>, path: &Path) -> Result<(), TrustError> {
    judge(file, PathObject::File, path)
}

/// The object at the end of a path.
enum PathEnd {
    File(OwnedFd),
    Folder,
    /// Not a regular file, or a regular file that was not opened because of a doubt.
    Other,
}

/// Follows a path and judges each folder and symlink on it. The first object that another user can change
/// becomes the `doubt`. After a doubt, the file at the end of the path is not opened.
fn follow_path(path: &Path, doubt: &mut Option<TrustError>) -> Result<(PathEnd, PathBuf), TrustError> {
    let unusable = |current_path: &Path, source: io::Error| TrustError::Unusable {
        path: current_path.to_owned(),
        source,
    };
    let absolute = std::path::absolute(path).map_err(|source| unusable(path, source))?;
    let mut components: Vec<OsString> = reversed_components(&absolute);
    let mut current_path = PathBuf::from("/");
    let mut folder =
        open_folder(None, OsStr::new("/")).map_err(|errno| unusable(&current_path, errno.into()))?;
    judge_component(folder.as_fd(), PathObject::Folder, &current_path, doubt)?;
    let mut link_count = 0;
    while let Some(name) = components.pop() {
        if name == ".." {
            current_path.pop();
            folder = open_folder(Some(folder.as_fd()), &name)
                .map_err(|errno| unusable(&current_path, errno.into()))?;
            judge_component(folder.as_fd(), PathObject::Folder, &current_path, doubt)?;
            continue;
        }
        let component_path = current_path.join(&name);
        let failed = |errno: Errno| unusable(&component_path, errno.into());
        let component = rustix::fs::openat(
            &folder,
            name.as_os_str(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(failed)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&component).map_err(failed)?.st_mode) {
            FileType::Directory => {
                judge_component(component.as_fd(), PathObject::Folder, &component_path, doubt)?;
                (folder, current_path) = (component, component_path);
            }
            FileType::Symlink => {
                judge_component(component.as_fd(), PathObject::Link, &component_path, doubt)?;
                link_count += 1;
                if link_count > MAX_LINKS {
                    return Err(failed(Errno::LOOP));
                }
                let target = rustix::fs::readlinkat(&component, "", Vec::new()).map_err(failed)?;
                let target = Path::new(OsStr::from_bytes(target.as_bytes())).to_owned();
                if target.is_absolute() {
                    current_path = PathBuf::from("/");
                    folder = open_folder(None, OsStr::new("/")).map_err(failed)?;
                }
                components.extend(reversed_components(&target));
            }
            // Do not open a file to which other users could have redirected this walk.
            FileType::RegularFile if components.is_empty() && doubt.is_some() => {
                return Ok((PathEnd::Other, component_path));
            }
            FileType::RegularFile if components.is_empty() => {
                let file = open_regular(folder.as_fd(), &name).map_err(failed)?;
                return Ok((file.map_or(PathEnd::Other, PathEnd::File), component_path));
            }
            _ if components.is_empty() => return Ok((PathEnd::Other, component_path)),
            _ => return Err(failed(Errno::NOTDIR)),
        }
    }
    Ok((PathEnd::Folder, current_path))
}

/// Opens a file that was found to be a regular file. Returns `None` if that has changed: a trusted user may
/// have replaced the file in the meantime.
fn open_regular(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    Ok((kind == FileType::RegularFile).then_some(file))
}

/// Judges an object on the path, and records the first doubt. Only system errors end the walk.
fn judge_component(
    handle: BorrowedFd<'_>,
    object: PathObject,
    path: &Path,
    doubt: &mut Option<TrustError>,
) -> Result<(), TrustError> {
    match judge(handle, object, path) {
        Err(error @ (TrustError::Foreign { .. } | TrustError::Writable { .. })) => {
            doubt.get_or_insert(error);
            Ok(())
        }
        judged => judged,
    }
}

/// Returns the components of a path, the last one first.
fn reversed_components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

fn open_folder(base: Option<BorrowedFd<'_>>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(base.unwrap_or(rustix::fs::CWD), name, flags, Mode::empty())
}

fn judge(handle: BorrowedFd<'_>, object: PathObject, path: &Path) -> Result<(), TrustError> {
    let failed = |errno: Errno| TrustError::Unusable { path: path.to_owned(), source: errno.into() };
    let stat = rustix::fs::fstat(handle).map_err(failed)?;
    let own_uid = rustix::process::geteuid().as_raw();
    let (is_trusted_owner, writers) =
        (is_trusted(stat.st_uid, own_uid), other_writers(&stat, object, handle));
    if is_trusted_owner && writers.is_none() {
        return Ok(());
    }
    // Checked last, because it needs a further system call and rarely matters.
    if rustix::fs::fstatvfs(handle)
        .is_ok_and(|file_system| file_system.f_flag.contains(StatVfsMountFlags::RDONLY))
    {
        return Ok(());
    }
    match writers {
        _ if !is_trusted_owner => {
            Err(TrustError::Foreign { object, path: path.to_owned(), owner: stat.st_uid, own_uid })
        }
        Some((writers, remedy)) => Err(TrustError::Writable {
            object,
            path: path.to_owned(),
            mode: stat.st_mode & 0o7777,
            writers,
            remedy,
        }),
        None => Ok(()),
    }
}

fn is_trusted(owner: u32, own_uid: u32) -> bool {
    owner == own_uid || owner == 0 || (owner == UNMAPPED && !is_mapped(UNMAPPED))
}

/// Returns the other users who may write to an object, and the `chmod` mode that forbids that.
fn other_writers(
    stat: &Stat,
    object: PathObject,
    handle: BorrowedFd<'_>,
) -> Option<(&'static str, &'static str)> {
    // A symlink's permissions are ignored. In a folder with the sticky bit, only the owner of a name can
    // rename or remove it, and the walk judges the owner of each name on the path.
    let is_sticky = object == PathObject::Folder && stat.st_mode & 0o1000 != 0;
    if object == PathObject::Link || is_sticky {
        return None;
    }
    if stat.st_mode & 0o002 != 0 {
        return Some(("everybody", "o-w"));
    }
    let by_group = stat.st_mode & 0o020 != 0;
    (by_group && (has_access_list(handle) || !is_private_group(stat.st_gid, stat.st_uid)))
        .then_some(("other members of its group", "g-w"))
}

/// Returns whether the object has an access list besides its mode. The group bits of the mode are then the
/// mask of the list.
fn has_access_list(handle: BorrowedFd<'_>) -> bool {
    // `getxattr` fails on an `O_PATH` handle, but works on the handle's name below `/proc`.
    let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let mut empty_buffer = [0_u8; 0];
    match rustix::fs::getxattr(name, "system.posix_acl_access", &mut empty_buffer[..]) {
        Ok(_) | Err(Errno::RANGE) => true,
        Err(_) => false,
    }
}

/// Returns whether the owner is the only member of a group, as on systems where each user has a group of the
/// same name and files are group-writable by default.
///
/// A group that is not in this machine's files may have any members. A group without members belongs to a
/// program: each user who runs that program, by its set-group-ID bit or as a service, is in the group.
fn is_private_group(group: u32, owner: u32) -> bool {
    let (Some(users), Some(groups)) = (read_table("/etc/passwd"), read_table("/etc/group")) else {
        return false;
    };
    has_only_owner(&users, &groups, group, owner)
}

fn has_only_owner(users: &str, groups: &str, group: u32, owner: u32) -> bool {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let mut owners = Vec::new();
    let mut has_owner = false;
    for user in users.lines().map(|line| line.split(':').collect::<Vec<_>>()) {
        let uid = number(user.get(2).copied());
        if uid == Some(owner) {
            owners.extend(user.first().copied());
            has_owner |= number(user.get(3).copied()) == Some(group);
        } else if number(user.get(3).copied()) == Some(group) {
            // Another user has this group as the primary group.
            return false;
        }
    }
    let mut is_listed = false;
    for line in groups.lines().map(|line| line.split(':').collect::<Vec<_>>()) {
        if number(line.get(2).copied()) != Some(group) {
            continue;
        }
        is_listed = true;
        for member in line.get(3).copied().unwrap_or_default().split(',').filter(|member| !member.is_empty())
        {
            if !owners.contains(&member) {
                return false;
            }
            has_owner = true;
        }
    }
    is_listed && has_owner
}

/// Returns whether a user id stands only for that user. In a user namespace that does not map [`UNMAPPED`],
/// this id stands for every user outside, and no process inside has it.
fn is_mapped(uid: u32) -> bool {
    let Some(map) = read_table("/proc/self/uid_map") else { return true };
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().filter_map(|text| text.parse::<u64>().ok());
        let (Some(first), _, Some(count)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return true;
        };
        (first..first.saturating_add(count)).contains(&u64::from(uid))
    })
}

fn read_table(path: &str) -> Option<String> {
    bounded::read_text(File::open(path).ok()?, MAX_TABLE_BYTES).ok()
}

/// The required ends of a path, as errors name them.
const FILE: &str = "regular file";
const FOLDER: &str = "folder";

/// The kernel's placeholder for owners that a user namespace does not map (`/proc/sys/kernel/overflowuid`).
const UNMAPPED: u32 = 65534;

/// The maximum number of symlinks on one path: as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// The maximum length of a table of users or groups that is read, in bytes: 4 MiB.
const MAX_TABLE_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        io::Read as _,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    fn fixture() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("etc");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        let file = folder.join("p.toml");
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        (dir, file)
    }

    #[track_caller]
    fn check_refused(path: &Path, object: PathObject, expected_path: &Path) {
        match open_file(path) {
            Err(
                TrustError::Writable { object: actual_object, path, .. }
                | TrustError::Foreign { object: actual_object, path, .. },
            ) => {
                assert_eq!((actual_object, path.as_path()), (object, expected_path));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_is_read_that_only_its_owner_can_change() {
        let (_dir, file) = fixture();
        let mut text = String::new();
        open_file(&file).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        judge_folder(file.parent().unwrap()).unwrap();
        assert!(open_file(&file.with_file_name("missing")).unwrap_err().is_missing());
        for (refused, expected) in [
            (open_file(file.parent().unwrap()).map(drop), "is not a regular file"),
            (judge_folder(&file), "is not a folder"),
        ] {
            let error = refused.unwrap_err();
            assert!(
                matches!(error, TrustError::Kind { .. }) && error.to_string().ends_with(expected),
                "{error}"
            );
        }
    }

    #[test]
    fn a_world_writable_file_is_refused_with_the_remedy() {
        let (_dir, file) = fixture();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        check_refused(&file, PathObject::File, &file);
        let message = open_file(&file).unwrap_err().to_string();
        assert!(message.contains("can be written by everybody (mode 0666)"), "{message}");
        assert!(message.contains(&format!("`chmod o-w {}`", file.display())), "{message}");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let folder = file.parent().unwrap().to_owned();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        check_refused(&file, PathObject::Folder, &folder);
        assert!(judge_folder(&folder).is_err());
        fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
        open_file(&file).expect("nobody else changes a name of ours in a folder with the sticky bit");
    }

    #[test]
    fn every_folder_and_link_on_the_way_counts() {
        let (dir, file) = fixture();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        let link = open.join("link.toml");
        symlink(&file, &link).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        open_file(&link).expect("a link that only we could have made");
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        check_refused(&link, PathObject::Folder, &open);
        // A symlink elsewhere and a path that goes through the folder and back are refused too.
        let second = dir.path().join("second.toml");
        symlink("open/link.toml", &second).unwrap();
        check_refused(&second, PathObject::Folder, &open);
        check_refused(&dir.path().join("open/../etc/p.toml"), PathObject::Folder, &open);
        let looped = dir.path().join("loop");
        symlink("loop", &looped).unwrap();
        assert!(matches!(open_file(&looped), Err(TrustError::Unusable { .. })));
    }

    #[test]
    fn an_absent_file_is_missing_even_on_an_untrusted_path() {
        let (dir, file) = fixture();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        symlink(open.join("nowhere"), dir.path().join("dangling")).unwrap();
        symlink(&file, open.join("leads.toml")).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        for path in [open.join("deep/p.toml"), open.join("p.toml"), dir.path().join("dangling")] {
            let missing = open_file(&path).unwrap_err();
            assert!(missing.is_missing(), "{missing:?}");
            let TrustError::Missing { cause, .. } = missing else {
                panic!("the error says who could create the file")
            };
            assert!(matches!(*cause, TrustError::Writable { .. }), "{cause:?}");
        }
        // An existing object of any kind is reported and not opened.
        check_refused(&open.join("leads.toml"), PathObject::Folder, &open);
        check_refused(&open, PathObject::Folder, &open);
        rustix::fs::mknodat(rustix::fs::CWD, open.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        check_refused(&open.join("fifo"), PathObject::Folder, &open);
    }

    #[test]
    fn file_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root gives files away");
            return;
        }
        let (dir, file) = fixture();
        let link = dir.path().join("link");
        symlink(&file, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
        check_refused(&link, PathObject::Link, &link);
        std::os::unix::fs::chown(&file, Some(12345), None).unwrap();
        check_refused(&file, PathObject::File, &file);
        let message = open_file(&file).unwrap_err().to_string();
        assert!(message.contains("belongs to user 12345") && message.contains("`chown 0 "), "{message}");
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
        std::os::unix::fs::chown(file.parent().unwrap(), Some(12345), None).unwrap();
        check_refused(&file, PathObject::Folder, file.parent().unwrap());
    }

    #[test]
    fn a_group_is_private_if_the_owner_is_its_only_member() {
        let users = "root:x:0:0::/:\nann:x:1000:1000::/:\nbob:x:1001:1001::/:\ncat:x:1002:1001::/:\n";
        let groups =
            "root:x:0:\nann:x:1000:\nbob:x:1001:\nteam:x:1100:ann,bob\nalone:x:1101:ann\nplayers:x:60:\n";
        for (group, owner, private) in [
            (0, 0, true),
            (1000, 1000, true),
            (1001, 1001, false),
            (1100, 1000, false),
            (1101, 1000, true),
            (1101, 1001, false),
            (1102, 1000, false),
            (1000, 4711, false),
            (60, 0, false),
            (60, 1000, false),
        ] {
            assert_eq!(has_only_owner(users, groups, group, owner), private, "{group} {owner}");
        }
    }

    #[test]
    fn a_fifo_is_not_a_file_and_is_not_waited_for() {
        let (dir, _file) = fixture();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(matches!(open_file(&fifo), Err(TrustError::Kind { .. })));
    }
}
