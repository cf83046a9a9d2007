//! What background jobs write after their command has ended: read, so that they do not block, and the last of
//! it kept.

use std::{
    collections::VecDeque,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{
    ShellError,
    limits::{BACKGROUND_BYTES, BACKGROUND_COMMANDS},
    watch::Watch,
};

/// The background jobs of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    kept: Mutex<VecDeque<u8>>,
    commands: AtomicUsize,
}

impl Background {
    /// # Errors
    /// [`ShellError::TooManyBackgroundCommands`] if no further command may leave jobs behind.
    pub(crate) fn require_room(&self) -> Result<(), ShellError> {
        let count = self.0.commands.load(Ordering::Acquire);
        if count < BACKGROUND_COMMANDS {
            Ok(())
        } else {
            Err(ShellError::TooManyBackgroundCommands { count })
        }
    }

    /// Reads `streams` on a thread of its own until `report` has ended: that is the end of the command's last
    /// process, until when `watch` looks at them.
    pub(crate) fn drain(
        &self,
        streams: Vec<OwnedFd>,
        report: OwnedFd,
        watch: Watch,
    ) -> Result<(), ShellError> {
        self.0.commands.fetch_add(1, Ordering::AcqRel);
        let background = self.clone();
        let started = thread::Builder::new().name("shell-background".to_owned()).spawn(move || {
            background.read(streams, &report);
            // Until the last of them has ended.
            drop(watch);
            background.0.commands.fetch_sub(1, Ordering::AcqRel);
        });
        started.map(drop).map_err(|source| {
            self.0.commands.fetch_sub(1, Ordering::AcqRel);
            ShellError::Start { source }
        })
    }

    /// The last of what was written, at most 64 KiB.
    pub(crate) fn output(&self) -> Vec<u8> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    fn read(&self, mut streams: Vec<OwnedFd>, report: &OwnedFd) {
        let mut chunk = vec![0; BACKGROUND_BYTES];
        loop {
            let mut watched = vec![PollFd::new(report, PollFlags::IN)];
            watched
                .extend(streams.iter().map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)));
            match poll(&mut watched, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            let over = !watched[0].revents().is_empty();
            drop(watched);
            // Both are non-blocking, see `running.rs`.
            let mut read_any = false;
            streams.retain(|stream| match rustix::io::read(stream, &mut chunk) {
                Ok(0) => false,
                Ok(read) => {
                    read_any = true;
                    self.keep(&chunk[..read]);
                    true
                }
                Err(Errno::AGAIN | Errno::INTR) => true,
                Err(_) => false,
            });
            if over && !read_any {
                return;
            }
        }
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(BACKGROUND_BYTES);
        kept.drain(..surplus);
    }
}
