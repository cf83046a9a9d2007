//! Opens a file that decides about rights, such as a policy, only if no user except root and our own can
//! change it: neither the file, nor a folder or a link on its path.
//!
//! The path is walked step by step on handles: each is judged before the next one is opened below it. The
//! file is judged by the descriptor that is then read (no TOCTOU race). On a file system that is mounted
//! read-only no user here can change anything, so its permissions do not count. An example is a container's
//! mounted configuration.

mod readers;

use std::{
    ffi::{OsStr, OsString},
    fmt,
    fs::File,
    io::{self, Read as _},
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

pub use readers::{GroupReaders, judge_readers};

/// The kind of an object on a file's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathObject {
    /// The file itself.
    File,
    /// A folder.
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
    /// It cannot be opened or examined.
    #[error("cannot open `{}`", path.display())]
    Unusable {
        /// The path that cannot be opened.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// It does not exist, and another user could have removed it, or could create it.
    #[error("there is no `{}`", path.display())]
    Missing {
        /// The path of the file.
        path: PathBuf,
        /// The part of its path that another user can change.
        #[source]
        doubt: Box<TrustError>,
    },
    /// It is not a regular file, or no folder.
    #[error("`{}` is not a regular file", path.display())]
    Kind {
        /// The path of the refused object.
        path: PathBuf,
    },
    /// Another user owns it, who could change it.
    #[error(
        "the {thing} `{}` belongs to user {owner}, who could change it; right would be root or our own user: `chown {own_uid} {}`",
        path.display(), path.display()
    )]
    Foreign {
        /// Whether it is a file or a folder.
        thing: PathObject,
        /// The path of the refused object.
        path: PathBuf,
        /// The owner's user number.
        owner: u32,
        /// Our own user.
        own_uid: u32,
    },
    /// Other users may write it.
    #[error(
        "the {thing} `{}` can be written by {by} (mode {mode:04o}), who could change what holds; right would be `chmod {remedy} {}`",
        path.display(), path.display()
    )]
    Writable {
        /// Whether it is a file or a folder.
        thing: PathObject,
        /// The path of the refused object.
        path: PathBuf,
        /// The permission bits of its mode.
        mode: u32,
        /// The users who may write it.
        by: &'static str,
        /// The `chmod` mode that forbids it.
        remedy: &'static str,
    },
    /// Other users may read it, and it holds a secret.
    #[error(
        "the file `{}` can be read by {by} (mode {mode:04o}), and holds a secret; right would be `chmod {remedy} {}`",
        path.display(), path.display()
    )]
    Readable {
        /// The path of the refused file.
        path: PathBuf,
        /// The permission bits of its mode.
        mode: u32,
        /// The users who may read it.
        by: &'static str,
        /// The `chmod` mode that forbids it.
        remedy: &'static str,
    },
}

impl TrustError {
    /// Whether the file does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Missing { .. } => true,
            Self::Unusable { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Kind { .. } | Self::Foreign { .. } | Self::Writable { .. } | Self::Readable { .. } => false,
        }
    }
}

/// Opens a file for reading that only root and our own user can change. The open does not block.
///
/// # Errors
/// [`TrustError`] if it cannot be opened, is not a regular file, or another user can change it or its path. If
/// the file does not exist, [`TrustError::is_missing`] holds, even if another user can change its path.
pub fn open_file(path: &Path) -> Result<File, TrustError> {
    let mut doubt = None;
    match walk(path, &mut doubt) {
        Ok((PathEnd::File(file), at)) => {
            judge(file.as_fd(), PathObject::File, &at)?;
            Ok(file.into())
        }
        Ok((PathEnd::Folder, at)) => Err(doubt.unwrap_or(TrustError::Kind { path: at })),
        Err(error) => Err(match doubt {
            Some(doubt) if error.is_missing() => {
                TrustError::Missing { path: path.to_owned(), doubt: Box::new(doubt) }
            }
            doubt => doubt.unwrap_or(error),
        }),
    }
}

/// Judges a folder and its path: whether only root and our own user can change its contents.
///
/// # Errors
/// Same as [`open_file`].
pub fn judge_folder(path: &Path) -> Result<(), TrustError> {
    let mut doubt = None;
    let found = walk(path, &mut doubt);
    match (doubt, found?) {
        (Some(doubt), _) => Err(doubt),
        (None, (PathEnd::Folder, _)) => Ok(()),
        (None, (PathEnd::File(_), at)) => Err(TrustError::Kind { path: at }),
    }
}

/// Judges an open regular file by itself, regardless of its path.
///
/// # Errors
/// Same as [`open_file`].
pub fn judge_file(file: BorrowedFd<'_>, path: &Path) -> Result<(), TrustError> {
    judge(file, PathObject::File, path)
}

/// The end of a path.
enum PathEnd {
    File(OwnedFd),
    Folder,
}

/// Follows a path, judging each folder and link on it. The first one that another user can change becomes the
/// `doubt`. The doubt counts if something exists at the end of the path, which is then not opened.
fn walk(path: &Path, doubt: &mut Option<TrustError>) -> Result<(PathEnd, PathBuf), TrustError> {
    let unusable = |at: &Path, source: io::Error| TrustError::Unusable { path: at.to_owned(), source };
    let absolute = std::path::absolute(path).map_err(|source| unusable(path, source))?;
    let mut left: Vec<OsString> = reversed_components(&absolute);
    let mut at = PathBuf::from("/");
    let mut folder = open_folder(None, OsStr::new("/")).map_err(|errno| unusable(&at, errno.into()))?;
    judge_component(folder.as_fd(), PathObject::Folder, &at, doubt)?;
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            folder = open_folder(Some(folder.as_fd()), &name).map_err(|errno| unusable(&at, errno.into()))?;
            judge_component(folder.as_fd(), PathObject::Folder, &at, doubt)?;
            continue;
        }
        let here = at.join(&name);
        let failed = |errno: Errno| unusable(&here, errno.into());
        let seen = rustix::fs::openat(
            &folder,
            name.as_os_str(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(failed)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&seen).map_err(failed)?.st_mode) {
            FileType::Directory => {
                judge_component(seen.as_fd(), PathObject::Folder, &here, doubt)?;
                (folder, at) = (seen, here);
            }
            FileType::Symlink => {
                judge_component(seen.as_fd(), PathObject::Link, &here, doubt)?;
                links += 1;
                if links > MAX_LINKS {
                    return Err(failed(Errno::LOOP));
                }
                let target = rustix::fs::readlinkat(&seen, "", Vec::new()).map_err(failed)?;
                let target = Path::new(OsStr::from_bytes(target.as_bytes())).to_owned();
                if target.is_absolute() {
                    at = PathBuf::from("/");
                    folder = open_folder(None, OsStr::new("/")).map_err(failed)?;
                }
                left.extend(reversed_components(&target));
            }
            // A file that other users could have led us to is not even opened.
            FileType::RegularFile if left.is_empty() && doubt.is_some() => {
                return Err(TrustError::Kind { path: here });
            }
            FileType::RegularFile if left.is_empty() => {
                let file = open_regular(folder.as_fd(), &name).map_err(failed)?;
                return match file {
                    Some(file) => Ok((PathEnd::File(file), here)),
                    None => Err(TrustError::Kind { path: here }),
                };
            }
            _ if left.is_empty() => return Err(TrustError::Kind { path: here }),
            _ => return Err(failed(Errno::NOTDIR)),
        }
    }
    Ok((PathEnd::Folder, at))
}

/// Opens a file that was seen to be a regular one. None if it no longer is: the users that are trusted here
/// may have replaced it since.
fn open_regular(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    Ok((kind == FileType::RegularFile).then_some(file))
}

/// Judges an object on the path, and records a doubt. Only errors of the system end the walk.
fn judge_component(
    handle: BorrowedFd<'_>,
    thing: PathObject,
    path: &Path,
    doubt: &mut Option<TrustError>,
) -> Result<(), TrustError> {
    match judge(handle, thing, path) {
        Err(found @ (TrustError::Foreign { .. } | TrustError::Writable { .. })) => {
            doubt.get_or_insert(found);
            Ok(())
        }
        judged => judged,
    }
}

/// The names of a path, the last one first.
fn reversed_components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

fn open_folder(from: Option<BorrowedFd<'_>>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(from.unwrap_or(rustix::fs::CWD), name, flags, Mode::empty())
}

fn judge(handle: BorrowedFd<'_>, thing: PathObject, path: &Path) -> Result<(), TrustError> {
    let failed = |errno: Errno| TrustError::Unusable { path: path.to_owned(), source: errno.into() };
    let stat = rustix::fs::fstat(handle).map_err(failed)?;
    let own_uid = rustix::process::geteuid().as_raw();
    let (is_ours, by) = (is_trusted(stat.st_uid, own_uid), written_by(&stat, thing, handle));
    if is_ours && by.is_none() {
        return Ok(());
    }
    // Asked last: it takes a further system call and is rarely needed.
    if rustix::fs::fstatvfs(handle).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        return Ok(());
    }
    match by {
        _ if !is_ours => {
            Err(TrustError::Foreign { thing, path: path.to_owned(), owner: stat.st_uid, own_uid })
        }
        Some((by, remedy)) => Err(TrustError::Writable {
            thing,
            path: path.to_owned(),
            mode: stat.st_mode & 0o7777,
            by,
            remedy,
        }),
        None => Ok(()),
    }
}

fn is_trusted(owner: u32, own_uid: u32) -> bool {
    owner == own_uid || owner == 0 || (owner == UNMAPPED && !is_mapped(UNMAPPED))
}

/// The other users who may write it, and the `chmod` mode that forbids that.
fn written_by(
    stat: &Stat,
    thing: PathObject,
    handle: BorrowedFd<'_>,
) -> Option<(&'static str, &'static str)> {
    // A link's permissions do not count. In a folder with the sticky bit only a name's owner can change its
    // target, and the owner of each name on the path is judged.
    let is_sticky = thing == PathObject::Folder && stat.st_mode & 0o1000 != 0;
    if thing == PathObject::Link || is_sticky {
        return None;
    }
    if stat.st_mode & 0o002 != 0 {
        return Some(("everybody", "o-w"));
    }
    let by_group = stat.st_mode & 0o020 != 0;
    (by_group && (has_access_list(handle) || !is_private_group(stat.st_gid, stat.st_uid)))
        .then_some(("others of its group", "g-w"))
}

/// Whether an access list grants rights besides the mode: then the mode's group bits are the mask for all of
/// its entries.
fn has_access_list(handle: BorrowedFd<'_>) -> bool {
    // `getxattr` does not work on an `O_PATH` handle, but works on its name below `/proc`.
    let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let mut none = [0_u8; 0];
    match rustix::fs::getxattr(name, "system.posix_acl_access", &mut none[..]) {
        Ok(_) | Err(Errno::RANGE) => true,
        Err(_) => false,
    }
}

/// Whether a group's only member is the owner, as on systems where each user has a group of the same name and
/// files are group-writable by default. A group that is not in this machine's files may have any members. A
/// group without members belongs to a program: each user who runs it, by its set-group-ID bit or as a
/// service, is in the group.
fn is_private_group(group: u32, owner: u32) -> bool {
    let (Some(users), Some(groups)) = (lines("/etc/passwd"), lines("/etc/group")) else { return false };
    only_the_owner(&users, &groups, group, owner)
}

fn only_the_owner(users: &str, groups: &str, group: u32, owner: u32) -> bool {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let mut owners = Vec::new();
    let mut has_owner = false;
    for user in users.lines().map(|line| line.split(':').collect::<Vec<_>>()) {
        let uid = number(user.get(2).copied());
        if uid == Some(owner) {
            owners.extend(user.first().copied());
            has_owner |= number(user.get(3).copied()) == Some(group);
        } else if number(user.get(3).copied()) == Some(group) {
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

/// Whether a user's number means that user here. In a user namespace that does not map it, it is
/// the number of every user outside, and no process inside is one of them.
fn is_mapped(uid: u32) -> bool {
    let Some(map) = lines("/proc/self/uid_map") else { return true };
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().filter_map(|text| text.parse::<u64>().ok());
        let (Some(first), _, Some(count)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return true;
        };
        (first..first.saturating_add(count)).contains(&u64::from(uid))
    })
}

fn lines(path: &str) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(MAX_TABLE_BYTES + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= MAX_TABLE_BYTES).then_some(text)
}

/// The kernel's stand-in for owners that a user namespace does not map (`/proc/sys/kernel/overflowuid`).
const UNMAPPED: u32 = 65534;

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// The largest table of users or groups that is read: 4 MiB.
const MAX_TABLE_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    fn world() -> (tempfile::TempDir, PathBuf) {
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
    fn check_refused(path: &Path, thing: PathObject, at: &Path) {
        match open_file(path) {
            Err(
                TrustError::Writable { thing: found, path, .. }
                | TrustError::Foreign { thing: found, path, .. },
            ) => {
                assert_eq!((found, path.as_path()), (thing, at));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_is_read_that_only_its_owner_can_change() {
        let (_dir, file) = world();
        let mut text = String::new();
        open_file(&file).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        judge_folder(file.parent().unwrap()).unwrap();
        assert!(open_file(&file.with_file_name("missing")).unwrap_err().is_missing());
        assert!(matches!(open_file(file.parent().unwrap()), Err(TrustError::Kind { .. })));
        assert!(matches!(judge_folder(&file), Err(TrustError::Kind { .. })));
    }

    #[test]
    fn a_world_writable_file_is_refused_with_the_remedy() {
        let (_dir, file) = world();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        check_refused(&file, PathObject::File, &file);
        let shown = open_file(&file).unwrap_err().to_string();
        assert!(shown.contains("can be written by everybody (mode 0666)"), "{shown}");
        assert!(shown.contains(&format!("`chmod o-w {}`", file.display())), "{shown}");
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
        let (dir, file) = world();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        let link = open.join("link.toml");
        symlink(&file, &link).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        open_file(&link).expect("a link that only we could have made");
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        check_refused(&link, PathObject::Folder, &open);
        // By a link elsewhere, and by a path that goes through the folder and back.
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
        let (dir, file) = world();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        symlink(open.join("nowhere"), dir.path().join("dangling")).unwrap();
        symlink(&file, open.join("leads.toml")).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        for path in [open.join("deep/p.toml"), open.join("p.toml"), dir.path().join("dangling")] {
            let missing = open_file(&path).unwrap_err();
            assert!(missing.is_missing(), "{missing:?}");
            let TrustError::Missing { doubt, .. } = missing else {
                panic!("who could put one there is told")
            };
            assert!(matches!(*doubt, TrustError::Writable { .. }), "{doubt:?}");
        }
        // An existing object is reported, of whatever kind, and not opened.
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
        let (dir, file) = world();
        let link = dir.path().join("link");
        symlink(&file, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
        check_refused(&link, PathObject::Link, &link);
        std::os::unix::fs::chown(&file, Some(12345), None).unwrap();
        check_refused(&file, PathObject::File, &file);
        let shown = open_file(&file).unwrap_err().to_string();
        assert!(shown.contains("belongs to user 12345") && shown.contains("`chown 0 "), "{shown}");
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
        std::os::unix::fs::chown(file.parent().unwrap(), Some(12345), None).unwrap();
        check_refused(&file, PathObject::Folder, file.parent().unwrap());
    }

    #[test]
    fn a_group_is_private_where_nobody_else_is_in_it() {
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
            assert_eq!(only_the_owner(users, groups, group, owner), private, "{group} {owner}");
        }
    }

    #[test]
    fn a_fifo_is_no_file_and_is_not_waited_for() {
        let (dir, _file) = world();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(matches!(open_file(&fifo), Err(TrustError::Kind { .. })));
    }
}
