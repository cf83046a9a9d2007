//! The socket's file: made where no other user can replace it, and removed at the end.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat},
    io::Errno,
};

use super::DaemonError;

/// The users that can reach the socket's file. Which of them the daemon then serves depends on the peer's
/// user id, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketAccess {
    /// The daemon's own user: a folder of mode 0700, a socket of mode 0600.
    Own,
    /// Any user: a folder that only the daemon's own user may write to, a socket of mode 0666.
    Others,
}

/// The file of a listening socket. Dropping it removes the file, if it still is the same one.
#[derive(Debug)]
pub(super) struct SocketFile {
    folder: OwnedFd,
    name: OsString,
    identity: (u64, u64),
}

/// Listens at `path`. A missing folder is made. The socket that a killed daemon left behind is removed; any
/// other file there is kept.
///
/// # Errors
/// [`DaemonError::Socket`] if the folder or the file cannot be trusted, or another daemon listens there.
pub(super) fn listen(path: &Path, reach: SocketAccess) -> Result<(UnixListener, SocketFile), DaemonError> {
    let problems = Problems { path };
    let name = path.file_name().ok_or_else(|| problems.refuse("has no name".to_owned()))?.to_owned();
    if path.as_os_str().len() > PATH_BYTES {
        let problem = format!("has a path of more than {PATH_BYTES} bytes, which no client can name");
        return Err(problems.refuse(problem));
    }
    let (folder, owner) = open_folder(&problems, reach)?;
    // Locked, so that two daemons that start at the same time do not take each other's socket for a leftover.
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)
        .map_err(|errno| problems.failed("has a folder that cannot be locked", errno))?;
    // Through the handle: whatever happens to the path, this is the folder that was checked.
    let place = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(&name);
    remove_leftover(&problems, &folder, owner, &name, &place)?;
    let listener =
        UnixListener::bind(&place).map_err(|error| problems.failed("cannot be listened on", error))?;
    let mode = match reach {
        SocketAccess::Own => Mode::RUSR | Mode::WUSR,
        SocketAccess::Others => Mode::from_raw_mode(0o666),
    };
    rustix::fs::chmodat(&folder, &name, mode, AtFlags::empty())
        .map_err(|errno| problems.failed("cannot have its mode set", errno))?;
    let made = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| problems.failed("cannot be looked at", errno))?;
    rustix::fs::flock(&folder, FlockOperation::Unlock)
        .map_err(|errno| problems.failed("has a folder that cannot be unlocked", errno))?;
    Ok((listener, SocketFile { folder, name, identity: identity(&made) }))
}

/// Makes errors about one socket.
struct Problems<'a> {
    path: &'a Path,
}

impl Problems<'_> {
    fn refuse(&self, problem: String) -> DaemonError {
        DaemonError::Socket { path: self.path.to_owned(), problem }
    }

    fn failed(&self, what: &str, error: impl Into<io::Error>) -> DaemonError {
        let error: io::Error = error.into();
        self.refuse(format!("{what}: {error}"))
    }
}

/// Opens the socket's folder, which is made if it is missing, and checks who may change it. Returns its owner
/// too.
fn open_folder(problems: &Problems<'_>, reach: SocketAccess) -> Result<(OwnedFd, u32), DaemonError> {
    let failed = |what: &str, errno: Errno| problems.failed(what, errno);
    let folder = match problems.path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match rustix::fs::mkdir(folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed("cannot have its folder made", errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())
        .map_err(|errno| failed("has a folder that cannot be opened or is a link", errno))?;
    let stat = rustix::fs::fstat(&folder).map_err(|errno| failed("has a folder that is unknown", errno))?;
    let denied = match reach {
        SocketAccess::Own => 0o077,
        SocketAccess::Others => 0o022,
    };
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & denied != 0 {
        let mode = stat.st_mode & 0o7777;
        return Err(problems.refuse(format!(
            "must lie in a folder of the daemon's own user without access for others; that one is of user {} \
             and mode {mode:o}",
            stat.st_uid
        )));
    }
    Ok((folder, stat.st_uid))
}

/// Removes the socket that a killed daemon of this owner left behind. `place` is its path through the
/// folder's handle.
fn remove_leftover(
    problems: &Problems<'_>,
    folder: &OwnedFd,
    owner: u32,
    name: &OsStr,
    place: &Path,
) -> Result<(), DaemonError> {
    let there = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(problems.failed("cannot be looked at", errno)),
        Ok(there) => there,
    };
    if FileType::from_raw_mode(there.st_mode) != FileType::Socket || there.st_uid != owner {
        return Err(problems.refuse("has something else in its place, which is left as it is".to_owned()));
    }
    match UnixStream::connect(place) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Ok(_) => return Err(problems.refuse("has a daemon listening there already".to_owned())),
        Err(error) => return Err(problems.failed("has a socket in its place", error)),
    }
    rustix::fs::unlinkat(folder, name, AtFlags::empty())
        .map_err(|errno| problems.failed("is a leftover that cannot be removed", errno))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let there = rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|there| identity(&there) == self.identity) {
            // An error is ignored: the next daemon recognises and removes the leftover.
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// Reads the token in a file, without its final line end.
///
/// # Errors
/// [`DaemonError::TokenFile`] if another user could have read or written the file, or it is a link.
pub(super) fn read_token(path: &Path) -> Result<super::Token, DaemonError> {
    let refuse = |problem: String| DaemonError::TokenFile { path: PathBuf::from(path), problem };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| refuse(format!("cannot be opened or is a link: {}", io::Error::from(errno))))?;
    let stat = rustix::fs::fstat(&file)
        .map_err(|errno| refuse(format!("cannot be looked at: {}", io::Error::from(errno))))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refuse("is no file".to_owned()));
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return Err(refuse("must be of the daemon's own user and of mode 0600".to_owned()));
    }
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(File::from(file), TOKEN_FILE_BYTES), &mut text)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    super::Token::parse(text.strip_suffix('\n').unwrap_or(&text))
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The kernel's limit on a socket's path, without the NUL.
const PATH_BYTES: usize = 107;

/// Longer than any token.
const TOKEN_FILE_BYTES: u64 = 4096;
