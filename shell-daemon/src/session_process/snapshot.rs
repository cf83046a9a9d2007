//! The snapshot of a session's state: a memory file that a shell writes when it exits and that the next shell reads.
//!
//! The file holds a list of names that only the writing shell needs, a NUL, the state, and NULs up to its end. Only
//! shells of the session read the contents. This module checks only the state's last line, which marks the state as
//! complete.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

/// The last line of a snapshot.
pub(super) const END: &str = "# portcullis: all of it";

/// The snapshots of a session.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    last_complete: Option<OwnedFd>,
    last_good: Option<OwnedFd>,
}

/// The snapshots that one command reads and writes.
#[derive(Debug)]
pub(super) struct CommandSnapshots {
    pub(super) read: Option<OwnedFd>,
    pub(super) write: OwnedFd,
}

impl Snapshots {
    /// Returns the snapshots of the next command. The previous command has ended, so its snapshot is final.
    /// `write` is a new file of fixed size.
    pub(super) fn next(&mut self, write: OwnedFd) -> io::Result<CommandSnapshots> {
        if let Some(last) = self.last_good.take()
            && snapshot_state(last.as_fd())? == SnapshotState::Complete
        {
            self.last_complete = Some(last);
        }
        self.last_good = Some(write.try_clone()?);
        let read = self.last_complete.as_ref().map(OwnedFd::try_clone).transpose()?;
        if let Some(read) = &read {
            // The last reader has moved the file offset, which all duplicates of the descriptor share.
            rustix::fs::seek(read, rustix::fs::SeekFrom::Start(0))?;
        }
        Ok(CommandSnapshots { read, write })
    }
}

/// The state of a snapshot's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotState {
    /// The whole snapshot.
    Complete,
    /// The snapshot did not fit.
    TooLarge,
    /// Nothing, or only the snapshot's start.
    Unfinished,
}

pub(super) fn snapshot_state(file: BorrowedFd<'_>) -> io::Result<SnapshotState> {
    let mut text = Vec::new();
    loop {
        let filled = text.len();
        // Most snapshots fit into the first piece. The piece doubles, so a large snapshot is scanned again only a few
        // times.
        text.resize((2 * filled).max(8 << 10), 0);
        let read = rustix::io::pread(file, &mut text[filled..], filled as u64)?;
        if read == 0 {
            return Ok(SnapshotState::TooLarge);
        }
        text.truncate(filled + read);
        // The layout: names, a NUL, the state, a NUL.
        let mut parts = text.split(|byte| *byte == 0);
        if let (Some(_), Some(state), Some(_)) = (parts.next(), parts.next(), parts.next()) {
            let last = state.strip_suffix(b"\n").unwrap_or(state).rsplit(|byte| *byte == b'\n').next();
            let is_whole = last == Some(END.as_bytes());
            return Ok(if is_whole { SnapshotState::Complete } else { SnapshotState::Unfinished });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limits::MAX_SNAPSHOT_BYTES, prepared::memory_file};

    fn empty() -> OwnedFd {
        memory_file("state", MAX_SNAPSHOT_BYTES).unwrap()
    }

    #[track_caller]
    fn check(text: &[u8], expected: SnapshotState) {
        let file = empty();
        assert_eq!(rustix::io::write(&file, text).unwrap(), text.len());
        assert_eq!(snapshot_state(file.as_fd()).unwrap(), expected);
    }

    #[test]
    fn partly_written_snapshot_is_ignored() {
        check(b"", SnapshotState::Unfinished);
        check(b"a\n", SnapshotState::Unfinished);
        check(b"a\n\0a=1\n", SnapshotState::Unfinished);
        check(format!("a=1\n{END}\n").as_bytes(), SnapshotState::Unfinished);
        check(format!("a\n\0a=1\n{END}\n").as_bytes(), SnapshotState::Complete);
        check(format!("a\n\0a={}\n{END}\n", "x".repeat(100_000)).as_bytes(), SnapshotState::Complete);
        check(format!("{}\0a=1\n{END}\n", "a\n".repeat(100_000)).as_bytes(), SnapshotState::Complete);
        check(format!("a\n\0{}", format!("a='\n{END}\n").repeat(2)).as_bytes(), SnapshotState::Complete);
        check(format!("a\n\0{END}\na=1\n").as_bytes(), SnapshotState::Unfinished);
        check(&vec![b'x'; usize::try_from(MAX_SNAPSHOT_BYTES).unwrap()], SnapshotState::TooLarge);
    }

    #[test]
    fn a_snapshot_takes_a_mebibyte_and_no_more() {
        let file = empty();
        let text = vec![b'x'; usize::try_from(MAX_SNAPSHOT_BYTES).unwrap()];
        assert_eq!(rustix::io::write(&file, &text).unwrap(), text.len());
        assert_eq!(rustix::io::write(&file, b"x"), Err(rustix::io::Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&file, 1), Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn an_unfinished_snapshot_leaves_the_last_good_one() {
        let mut snapshots = Snapshots::default();
        let first = snapshots.next(empty()).unwrap();
        assert!(first.read.is_none());
        rustix::io::write(&first.write, format!("a\n\0a=1\n{END}\n").as_bytes()).unwrap();
        let second = snapshots.next(empty()).unwrap();
        assert!(second.read.is_some());
        rustix::io::write(&second.write, b"a\n\0a=2\n").unwrap();
        let read = snapshots.next(empty()).unwrap().read.unwrap();
        let mut text = [0; 7];
        rustix::io::read(&read, &mut text).unwrap();
        assert_eq!(&text, b"a\n\0a=1\n");
    }
}
