//! Resolves the paths of a waiting system call as the calling thread sees them. All data comes from `/proc`.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::FileExt as _,
        },
    },
    path::PathBuf,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use portcullis_confine::PathArgument;

/// The maximum length of a path that the kernel takes, with its NUL (`PATH_MAX`).
const MAX_PATH_BYTES: usize = 4096;

/// Bytes to read at a time. A read never crosses a page boundary, because the next page may be unmapped.
const CHUNK_BYTES: u64 = 256;

/// The maximum number of symlinks in one path, as in the kernel (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// A thread that waits in a system call.
#[derive(Debug)]
pub(super) struct CallingThread {
    folder: PathBuf,
    root: OwnedFd,
    memory: File,
}

impl CallingThread {
    /// Opens the thread's files.
    ///
    /// # Errors
    /// The system's error, for example if the thread is gone.
    pub(super) fn open(thread: u32) -> io::Result<Self> {
        let folder = PathBuf::from(format!("/proc/{thread}"));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, folder.join("root"), flags, Mode::empty())?;
        let memory = File::open(folder.join("mem"))?;
        Ok(Self { folder, root, memory })
    }

    /// Returns the components of the path that an argument names, with links resolved. `None` for a path that
    /// the kernel will refuse itself.
    ///
    /// # Errors
    /// The system's error if the thread cannot be read.
    pub(super) fn path(&self, argument: &PathArgument) -> io::Result<Option<Vec<Vec<u8>>>> {
        let Some(text) = argument.text_address else {
            let path = argument.directory.and_then(|descriptor| self.descriptor(descriptor).ok());
            return Ok(path.as_deref().map(components));
        };
        let Some(text) = self.text(text)? else { return Ok(None) };
        if text.is_empty() {
            return Ok(None);
        }
        let base = match (text[0], argument.directory) {
            (b'/', _) => Vec::new(),
            (_, None) => components(&fs::read_link(self.folder.join("cwd"))?.into_os_string().into_vec()),
            (_, Some(descriptor)) => match self.descriptor(descriptor) {
                Ok(path) => components(&path),
                // The kernel will refuse the descriptor.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        self.resolve(base, &text, argument.follows_symlink)
    }

    /// The path of an open descriptor, as its owner sees it.
    fn descriptor(&self, descriptor: i32) -> io::Result<Vec<u8>> {
        let link = self.folder.join("fd").join(descriptor.to_string());
        Ok(fs::read_link(link)?.into_os_string().into_vec())
    }

    /// Reads a NUL-terminated string. `None` if it is too long, or not mapped.
    fn text(&self, address: u64) -> io::Result<Option<Vec<u8>>> {
        let mut text = Vec::new();
        let mut at = address;
        while text.len() < MAX_PATH_BYTES {
            let len = CHUNK_BYTES - at % CHUNK_BYTES;
            let mut chunk = vec![0; usize::try_from(len).unwrap_or_default()];
            match self.memory.read_at(&mut chunk, at) {
                Ok(0) => return Ok(None),
                Ok(read) => chunk.truncate(read),
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::IO | Errno::FAULT)) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
            if let Some(end) = chunk.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&chunk[..end]);
                return Ok(Some(text));
            }
            at += chunk.len() as u64;
            text.append(&mut chunk);
        }
        Ok(None)
    }

    /// Resolves a path as the kernel will for the caller, whose root folder can differ from this process's.
    fn resolve(&self, base: Vec<Vec<u8>>, text: &[u8], follows: bool) -> io::Result<Option<Vec<Vec<u8>>>> {
        if let Some(path) = self.path_without_links(&base, text, follows)? {
            return Ok(Some(path));
        }
        let mut resolved = base;
        let mut pending: VecDeque<Vec<u8>> = components(text).into();
        let mut links = 0;
        while let Some(name) = pending.pop_front() {
            match name.as_slice() {
                b"." => continue,
                b".." => {
                    resolved.pop();
                    continue;
                }
                _ => {}
            }
            resolved.push(name);
            // A call such as `lstat` acts on the link itself.
            if pending.is_empty() && !follows {
                break;
            }
            if self.is_own_process(&resolved) {
                let Some(target) = self.own_descriptor(&mut pending)? else { return Ok(None) };
                resolved = components(&target);
                continue;
            }
            let Some(target) = self.link(&resolved)? else { continue };
            links += 1;
            // The kernel gives up at the same number, so the caller's call fails too.
            if links > MAX_LINKS {
                return Ok(None);
            }
            resolved.pop();
            // An absolute target begins at the caller's root again.
            if target.starts_with(b"/") {
                resolved.clear();
            }
            for component in components(&target).into_iter().rev() {
                pending.push_front(component);
            }
        }
        Ok(Some(resolved))
    }

    /// Fast path for a path without symlinks, as most paths are. It takes two system calls, however deep the
    /// path is. `None` if the path may have a symlink, if its folder is absent, or if it has a `..`.
    fn path_without_links(
        &self,
        base: &[Vec<u8>],
        text: &[u8],
        follows: bool,
    ) -> io::Result<Option<Vec<Vec<u8>>>> {
        let mut path = base.to_vec();
        path.extend(components(text).into_iter().filter(|name| name != b"."));
        let has_parent = path.iter().any(|name| name == b"..");
        let Some((name, parent)) = path.split_last().filter(|_| !has_parent) else { return Ok(None) };
        let parent = if parent.is_empty() { b".".to_vec() } else { parent.join(&b'/') };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let beneath = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let parent = std::ffi::OsStr::from_bytes(&parent);
        // Ignore the error: the slow path inspects each component, and handles the same error there.
        let Ok(parent) = rustix::fs::openat2(&self.root, parent, flags, Mode::empty(), beneath) else {
            return Ok(None);
        };
        if follows {
            match rustix::fs::statat(&parent, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(path))
    }

    /// The target of a symlink. `None` if the path is something else, or absent.
    fn link(&self, path: &[Vec<u8>]) -> io::Result<Option<Vec<u8>>> {
        let text = path.join(&b'/');
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let beneath = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let name = std::ffi::OsStr::from_bytes(&text);
        let handle = match rustix::fs::openat2(&self.root, name, flags, Mode::empty(), beneath) {
            Ok(handle) => handle,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::ACCESS) => {
                return Ok(None);
            }
            Err(errno) => return Err(errno.into()),
        };
        if FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode) != FileType::Symlink {
            return Ok(None);
        }
        Ok(Some(rustix::fs::readlinkat(&handle, "", Vec::new())?.into_bytes()))
    }

    /// Whether a path is `/proc/self` or `/proc/thread-self`. These lead each process to itself.
    fn is_own_process(&self, path: &[Vec<u8>]) -> bool {
        matches!(path, [proc, own] if proc == b"proc" && (own == b"self" || own == b"thread-self"))
    }

    /// Returns the path of the descriptor that the rest `fd/N` of a path below `/proc/self` names. `None` for
    /// any other rest, because nothing below it is in a mount.
    fn own_descriptor(&self, pending: &mut VecDeque<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
        if pending.pop_front().as_deref() != Some(b"fd") {
            return Ok(None);
        }
        let number = pending.pop_front().and_then(|name| String::from_utf8(name).ok()?.parse().ok());
        let Some(number) = number else { return Ok(None) };
        match self.descriptor(number) {
            Ok(target) if target.starts_with(b"/") => Ok(Some(target)),
            // A pipe or a socket, or nothing.
            _ => Ok(None),
        }
    }
}

fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_path_is_resolved_as_the_kernel_does_it() {
        let folder = tempfile::tempdir().expect("a folder");
        // The temporary folder's path may itself have symlinks.
        let path = {
            use std::os::fd::AsRawFd as _;
            let handle = File::open(folder.path()).expect("opens");
            fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).expect("readable")
        };
        fs::create_dir_all(path.join("real/deep")).expect("the folder can be made");
        fs::write(path.join("real/file"), "").expect("written");
        symlink("real", path.join("alias")).expect("linked");
        symlink("../real/file", path.join("real/link")).expect("linked");
        symlink("absent", path.join("real/dangling")).expect("linked");
        symlink("loop", path.join("loop")).expect("linked");
        let caller = CallingThread::open(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned())
            .expect("opens");
        for (text, follows, expected) in [
            ("real/file", true, Some("real/file")),
            ("./real//file", true, Some("real/file")),
            ("real/new", true, Some("real/new")),
            ("absent/new", true, Some("absent/new")),
            ("real/file/below", true, Some("real/file/below")),
            ("real/link", false, Some("real/link")),
            ("real/link", true, Some("real/file")),
            ("real/dangling", true, Some("real/absent")),
            ("alias", false, Some("alias")),
            ("alias", true, Some("real")),
            ("alias/file", false, Some("real/file")),
            ("alias/link", true, Some("real/file")),
            ("real/deep/../file", false, Some("real/file")),
            ("alias/../real/new", false, Some("real/new")),
            ("loop", true, None),
            ("loop/file", false, None),
        ] {
            let text = CString::new(format!("{}/{text}", path.display())).expect("no NUL");
            let argument = PathArgument {
                directory: None,
                text_address: Some(text.as_ptr().addr() as u64),
                follows_symlink: follows,
            };
            let expected = expected.map(|expected| components(path.join(expected).as_os_str().as_bytes()));
            assert_eq!(caller.path(&argument).expect("readable"), expected, "{text:?} {follows}");
        }
    }
}
