//! [`ConversationFolder`]: finds, locks, reads, writes and removes the files of conversations.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use portcullis_tools::policy::InvalidFlowLabel;
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::{ConversationError, ConversationId, ConversationRecord};
use crate::output::text;

/// The most conversations that are kept for a state folder. The oldest one that no process has open is removed first.
pub(crate) const MAX_CONVERSATIONS: usize = 100;

/// The largest file of a conversation: 32 MiB. The file is written after each step, and pictures and results make it
/// grow.
pub(crate) const MAX_CONVERSATION_BYTES: u64 = 32 << 20;

/// The folder of all conversations of a state folder.
#[derive(Debug)]
pub(crate) struct ConversationFolder {
    /// None if the folder does not exist yet.
    folder: Option<OwnedFd>,
    state: PathBuf,
}

/// The file of one conversation, which no other process can open meanwhile.
#[derive(Debug)]
pub(crate) struct ConversationFile {
    state: PathBuf,
    id: ConversationId,
    /// The folder and the lock. None for a new conversation that was not written yet.
    held: Option<(OwnedFd, OwnedFd)>,
}

impl ConversationFolder {
    /// Opens the folder in a state folder. Nothing is made.
    ///
    /// # Errors
    /// [`ConversationError::Folder`] or [`ConversationError::Foreign`].
    pub(crate) fn open(state: &Path) -> Result<Self, ConversationError> {
        let folder = match open_folder(&state.join(FOLDER)) {
            Err(ConversationError::Folder { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        Ok(Self { folder, state: state.to_owned() })
    }

    /// The newest conversation about a workspace.
    ///
    /// # Errors
    /// [`ConversationError::None`] if there is none. The newest file must be readable: a file with a fault is not
    /// passed over, because an older conversation would then be continued by mistake.
    pub(crate) fn newest(
        &self,
        workspace: &str,
    ) -> Result<(ConversationFile, ConversationRecord), ConversationError> {
        let ids = match &self.folder {
            Some(folder) => newest_first(folder).map_err(|source| self.failed(source))?,
            None => Vec::new(),
        };
        for id in ids {
            match self.resume(&id, workspace) {
                Err(ConversationError::OtherWorkspace { .. }) => {}
                opened => return opened,
            }
        }
        Err(ConversationError::None { workspace: text::inline(workspace) })
    }

    /// The conversation with this id, which must be about the workspace.
    ///
    /// # Errors
    /// [`ConversationError`] if there is no such conversation, if its file cannot be used, or if another process has
    /// it open.
    pub(crate) fn resume(
        &self,
        id: &ConversationId,
        workspace: &str,
    ) -> Result<(ConversationFile, ConversationRecord), ConversationError> {
        let path = path_of(&self.state, id);
        let unknown = || ConversationError::Unknown { id: id.clone(), folder: self.state.join(FOLDER) };
        let folder = self.folder.as_ref().ok_or_else(unknown)?;
        let read = |source| ConversationError::Read { path: path.clone(), source };
        // The file is opened first, so that an unknown id leaves no lock behind.
        let name = file_name(id, STORED);
        match open_file(folder, &name) {
            Err(Errno::NOENT) => return Err(unknown()),
            Err(Errno::LOOP) => return Err(ConversationError::NoFile { path }),
            opened => drop(opened.map_err(|errno| read(errno.into()))?),
        }
        let lock = lock(folder, id)?;
        // Opened again: the holder of the lock before may have replaced the file, or removed it.
        let file = open_file(folder, &name).map_err(|errno| read(errno.into()))?;
        let record = ConversationRecord::parse(&read_checked(file, &path)?, id, &path)?;
        if record.workspace != workspace {
            let [other, workspace] = [&*record.workspace, workspace].map(text::inline);
            return Err(ConversationError::OtherWorkspace { id: id.clone(), other, workspace });
        }
        let folder = folder.try_clone().map_err(|source| self.failed(source))?;
        let file = ConversationFile { state: self.state.clone(), id: id.clone(), held: Some((folder, lock)) };
        Ok((file, record))
    }

    /// The file of a new conversation. It is made when it is first written.
    pub(crate) fn begin(&self, id: ConversationId) -> ConversationFile {
        ConversationFile { state: self.state.clone(), id, held: None }
    }

    fn failed(&self, source: io::Error) -> ConversationError {
        ConversationError::Folder { folder: self.state.join(FOLDER), source }
    }
}

impl ConversationFile {
    /// Replaces the file, as a whole or not at all. The first write of a new conversation makes the folder, and removes
    /// the oldest conversations beyond [`MAX_CONVERSATIONS`].
    ///
    /// # Errors
    /// [`ConversationError::TooLong`], or why the file cannot be written. The file is then as it was before.
    pub(crate) fn write(&mut self, record: &ConversationRecord) -> Result<(), ConversationError> {
        let bytes = serde_json::to_vec(record).map_err(|source| ConversationError::Encode { source })?;
        if bytes.len() as u64 > MAX_CONVERSATION_BYTES {
            return Err(ConversationError::TooLong { limit: text::bytes(MAX_CONVERSATION_BYTES) });
        }
        let failed = |source| ConversationError::Write { path: path_of(&self.state, &self.id), source };
        if let Some((folder, _lock)) = &self.held {
            return replace(folder, &self.id, &bytes).map_err(failed);
        }
        let folder = make_folder(&self.state.join(FOLDER))?;
        let lock = lock(&folder, &self.id)?;
        replace(&folder, &self.id, &bytes).map_err(failed)?;
        remove_oldest(&folder, MAX_CONVERSATIONS).map_err(failed)?;
        self.held = Some((folder, lock));
        Ok(())
    }

    /// The error of a label that the file has and that is unknown.
    pub(super) fn label_error(&self, source: InvalidFlowLabel) -> ConversationError {
        ConversationError::Label { path: path_of(&self.state, &self.id), source }
    }
}

/// Writes a temporary file and renames it. The lock is held, so the temporary file is of this process, or of one that
/// died.
fn replace(folder: &OwnedFd, id: &ConversationId, bytes: &[u8]) -> io::Result<()> {
    let temporary = file_name(id, TEMPORARY);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(folder, &temporary, flags, OWNER_FILE)?);
    file.write_all(bytes)?;
    file.sync_all()?;
    rustix::fs::renameat(folder, &temporary, folder, file_name(id, STORED))?;
    rustix::fs::fsync(folder)?;
    Ok(())
}

/// Removes the oldest conversations until `kept` are left. A conversation that a process has open stays.
fn remove_oldest(folder: &OwnedFd, kept: usize) -> io::Result<()> {
    for id in newest_first(folder)?.into_iter().skip(kept) {
        let Ok(_lock) = lock(folder, &id) else { continue };
        for ending in [STORED, TEMPORARY, LOCK] {
            match rustix::fs::unlinkat(folder, file_name(&id, ending), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}

/// The ids of all conversations, the last written one first.
fn newest_first(folder: &OwnedFd) -> io::Result<Vec<ConversationId>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = str::from_utf8(entry.file_name().to_bytes()).unwrap_or_default();
        let Some(id) = name.strip_suffix(STORED).and_then(|id| id.parse::<ConversationId>().ok()) else {
            continue;
        };
        match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => found.push(((stat.st_mtime, stat.st_mtime_nsec), id)),
            // Another process has removed it meanwhile.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    found.sort();
    Ok(found.into_iter().rev().map(|(_, id)| id).collect())
}

/// Locks a conversation for this process, until the returned handle is dropped.
fn lock(folder: &OwnedFd, id: &ConversationId) -> Result<OwnedFd, ConversationError> {
    let failed =
        |errno: Errno| ConversationError::Write { path: file_name(id, LOCK).into(), source: errno.into() };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = rustix::fs::openat(folder, file_name(id, LOCK), flags, OWNER_FILE).map_err(failed)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(ConversationError::InUse { id: id.clone() }),
        Err(errno) => Err(failed(errno)),
    }
}

/// Opens a file for reading. The flags refuse a link, and do not block on a FIFO.
fn open_file(folder: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

/// Reads a file of this user, of bounded size.
fn read_checked(file: OwnedFd, path: &Path) -> Result<Vec<u8>, ConversationError> {
    let failed = |source| ConversationError::Read { path: path.to_owned(), source };
    let stat = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(ConversationError::NoFile { path: path.to_owned() });
    }
    ensure_own(stat.st_uid, path)?;
    let mut bytes = Vec::new();
    File::from(file).take(MAX_CONVERSATION_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_CONVERSATION_BYTES {
        let limit = text::bytes(MAX_CONVERSATION_BYTES);
        return Err(ConversationError::Oversized { path: path.to_owned(), limit });
    }
    Ok(bytes)
}

fn make_folder(path: &Path) -> Result<OwnedFd, ConversationError> {
    match rustix::fs::mkdirat(CWD, path, Mode::RWXU) {
        // The folder of an earlier start is checked below.
        Ok(()) | Err(Errno::EXIST) => open_folder(path),
        Err(errno) => Err(ConversationError::Folder { folder: path.to_owned(), source: errno.into() }),
    }
}

/// Opens the folder, which must be this user's, and makes it private.
fn open_folder(path: &Path) -> Result<OwnedFd, ConversationError> {
    let failed = |errno: Errno| ConversationError::Folder { folder: path.to_owned(), source: errno.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
    ensure_own(rustix::fs::fstat(&folder).map_err(failed)?.st_uid, path)?;
    rustix::fs::fchmod(&folder, Mode::RWXU).map_err(failed)?;
    Ok(folder)
}

fn ensure_own(owner: u32, path: &Path) -> Result<(), ConversationError> {
    let own = rustix::process::geteuid().as_raw();
    if owner == own { Ok(()) } else { Err(ConversationError::Foreign { path: path.to_owned(), owner, own }) }
}

fn path_of(state: &Path, id: &ConversationId) -> PathBuf {
    state.join(FOLDER).join(file_name(id, STORED))
}

fn file_name(id: &ConversationId, ending: &str) -> String {
    format!("{id}{ending}")
}

const FOLDER: &str = "conversations";
const STORED: &str = ".json";
const TEMPORARY: &str = ".tmp";
const LOCK: &str = ".lock";
const OWNER_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

#[cfg(test)]
mod tests;
