//! Creates the socket's file where no other user can replace it, and removes the file at the end.

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
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat},
    io::Errno,
};

use super::SidecarServerError;

/// The users that can reach the socket's file. The sidecar then decides by the peer's user id, which the kernel
/// reports, whether to serve a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketAccess {
    /// The sidecar's own user. The folder has mode 0700, the socket 0600.
    Own,
    /// Any user. Only the sidecar's own user may write to the folder, and the socket has mode 0666.
    Others,
}

/// The file of a listening socket. Dropping this removes the file, unless another file has taken its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    folder: OwnedFd,
    name: OsString,
    identity: (u64, u64),
}

/// Listens at `path`. A missing folder is made. A socket that a killed sidecar left behind is removed. Any other file
/// at `path` is kept, and is an error. The file gets its name last, when it has its mode and the sidecar listens, so
/// that a client that sees the file can connect.
///
/// # Errors
/// [`SidecarServerError::Socket`] if the folder or the file cannot be trusted, or another sidecar listens there.
pub(super) fn listen(
    path: &Path,
    reach: SocketAccess,
) -> Result<(UnixListener, SocketFile), SidecarServerError> {
    let faults = SocketFaults { path };
    let name = path.file_name().ok_or_else(|| faults.socket_error("has no name".to_owned()))?.to_owned();
    if path.as_os_str().len() > MAX_PATH_BYTES {
        let problem = format!("has a path of more than {MAX_PATH_BYTES} bytes, which no client can name");
        return Err(faults.socket_error(problem));
    }
    let (folder, owner) = open_folder(&faults, reach)?;
    // Lock the folder, so that two sidecars that start at the same time do not take each other's socket for a leftover.
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)
        .map_err(|errno| faults.system_error("has a folder that cannot be locked", errno))?;
    // Use the handle of the checked folder, because the path could lead to another folder by now.
    let handle = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    let unready = OsStr::new(UNREADY_NAME);
    remove_leftover(&faults, &folder, owner, &name, &handle)?;
    remove_leftover(&faults, &folder, owner, unready, &handle)?;
    // The kernel makes the file before the socket listens, so the file gets its name last.
    let listener = UnixListener::bind(handle.join(unready))
        .map_err(|error| faults.system_error("cannot be listened on", error))?;
    let mode = match reach {
        SocketAccess::Own => Mode::RUSR | Mode::WUSR,
        SocketAccess::Others => Mode::from_raw_mode(0o666),
    };
    rustix::fs::chmodat(&folder, unready, mode, AtFlags::empty())
        .map_err(|errno| faults.system_error("cannot have its mode set", errno))?;
    let socket_stat = rustix::fs::statat(&folder, unready, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| faults.system_error("cannot be examined", errno))?;
    rustix::fs::renameat_with(&folder, unready, &folder, &name, RenameFlags::NOREPLACE)
        .map_err(|errno| faults.system_error("cannot get its name", errno))?;
    rustix::fs::flock(&folder, FlockOperation::Unlock)
        .map_err(|errno| faults.system_error("has a folder that cannot be unlocked", errno))?;
    Ok((listener, SocketFile { folder, name, identity: identity(&socket_stat) }))
}

/// Makes errors about one socket.
struct SocketFaults<'a> {
    path: &'a Path,
}

impl SocketFaults<'_> {
    fn socket_error(&self, problem: String) -> SidecarServerError {
        SidecarServerError::Socket { path: self.path.to_owned(), problem }
    }

    fn system_error(&self, problem: &str, error: impl Into<io::Error>) -> SidecarServerError {
        let error: io::Error = error.into();
        self.socket_error(format!("{problem}: {error}"))
    }
}

/// Opens the socket's folder and checks which users may change it. Makes the folder if it is missing. Also returns the
/// folder's owner.
fn open_folder(faults: &SocketFaults<'_>, reach: SocketAccess) -> Result<(OwnedFd, u32), SidecarServerError> {
    let failed = |problem: &str, errno: Errno| faults.system_error(problem, errno);
    let folder = match faults.path.parent() {
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
        return Err(faults.socket_error(format!(
            "must be in a folder of the sidecar's own user without access for others; that one is of user {} \
             and mode {mode:o}",
            stat.st_uid
        )));
    }
    Ok((folder, stat.st_uid))
}

/// Removes the socket that a killed sidecar of this owner left behind. `handle` is the path of the folder's handle.
fn remove_leftover(
    faults: &SocketFaults<'_>,
    folder: &OwnedFd,
    owner: u32,
    name: &OsStr,
    handle: &Path,
) -> Result<(), SidecarServerError> {
    let entry = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(faults.system_error("cannot be examined", errno)),
        Ok(entry) => entry,
    };
    if FileType::from_raw_mode(entry.st_mode) != FileType::Socket || entry.st_uid != owner {
        return Err(faults.socket_error(
            "already exists and is not a socket of the daemon's user; it was left unchanged".to_owned(),
        ));
    }
    match UnixStream::connect(handle.join(name)) {
        // The kernel refuses the connection if no process listens, so the socket is a leftover.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Ok(_) => return Err(faults.socket_error("has a sidecar listening there already".to_owned())),
        Err(error) => return Err(faults.system_error("has a socket in its place", error)),
    }
    rustix::fs::unlinkat(folder, name, AtFlags::empty())
        .map_err(|errno| faults.system_error("is a leftover that cannot be removed", errno))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let entry = rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if entry.is_ok_and(|entry| identity(&entry) == self.identity) {
            // Ignore an error: the next sidecar removes the leftover.
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// Reads the token from a file. A final line end is not part of the token.
///
/// # Errors
/// [`SidecarServerError::TokenFile`] if the file cannot be read, is a link, or could be read or written by another user.
/// [`SidecarServerError::Token`] if the text is not a valid token.
pub(super) fn read_token(path: &Path) -> Result<super::Token, SidecarServerError> {
    let file_error = |problem: String| SidecarServerError::TokenFile { path: PathBuf::from(path), problem };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| file_error(format!("cannot be opened or is a link: {}", io::Error::from(errno))))?;
    let stat = rustix::fs::fstat(&file)
        .map_err(|errno| file_error(format!("cannot be examined: {}", io::Error::from(errno))))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(file_error("is not a file".to_owned()));
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return Err(file_error("must be of the sidecar's own user and of mode 0600".to_owned()));
    }
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(File::from(file), MAX_TOKEN_FILE_BYTES), &mut text)
        .map_err(|error| file_error(format!("cannot be read: {error}")))?;
    super::Token::parse(text.strip_suffix('\n').unwrap_or(&text))
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The name of the socket's file until the sidecar listens.
const UNREADY_NAME: &str = ".unready-socket";

/// The maximum length of the path of a socket that the kernel accepts, without the NUL.
const MAX_PATH_BYTES: usize = 107;

/// The maximum number of bytes that are read from a token's file. Every token is shorter.
const MAX_TOKEN_FILE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, thread};

    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    #[test]
    fn a_client_that_sees_the_file_can_connect() {
        let folder = folder();
        let path = folder.path().join("socket");
        for _ in 0..200 {
            let client = thread::spawn({
                let path = path.clone();
                move || {
                    loop {
                        match UnixStream::connect(&path) {
                            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                            other => break other.map(drop),
                        }
                    }
                }
            });
            let listening = listen(&path, SocketAccess::Own).unwrap();
            client.join().unwrap().unwrap();
            drop(listening);
        }
    }

    #[test]
    fn a_file_that_never_got_its_name_is_removed() {
        let folder = folder();
        drop(UnixListener::bind(folder.path().join(UNREADY_NAME)).unwrap());
        let (_listener, _file) = listen(&folder.path().join("socket"), SocketAccess::Own).unwrap();
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["socket"]);
    }
}
