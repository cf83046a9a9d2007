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
    Interruption, ShellError,
    limits::{BACKGROUND_BYTES, BACKGROUND_COMMANDS, BACKGROUND_KILLS},
    watch::Watch,
};

/// The background jobs of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    kept: Mutex<Kept>,
    commands: AtomicUsize,
}

/// The last of what was written, and how much that was in all.
#[derive(Debug, Default)]
struct Kept {
    last: VecDeque<u8>,
    written: u64,
    /// Where in all that was written a watch said why it killed, and why.
    killed: VecDeque<(u64, Interruption)>,
}

/// What background jobs wrote after their commands had ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackgroundOutput {
    /// The last of it, at most 64 KiB.
    pub bytes: Vec<u8>,
    /// How much came before that and is not kept any more.
    pub dropped: u64,
    /// Where it ends, counted from the session's begin: what is asked for next begins here.
    pub end: u64,
    /// Why jobs were killed by their watch in between. The same is said in `bytes`, at its place, in a line of its
    /// own, which a job could write as well.
    pub killed: Vec<Interruption>,
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
    /// process, until when `watch` looks at them. `tells` says whether it is news if that kills them.
    pub(crate) fn drain(
        &self,
        streams: Vec<OwnedFd>,
        report: OwnedFd,
        watch: Watch,
        tells: bool,
    ) -> Result<(), ShellError> {
        self.0.commands.fetch_add(1, Ordering::AcqRel);
        let background = self.clone();
        let started = thread::Builder::new().name("shell-background".to_owned()).spawn(move || {
            background.read(streams, &report);
            if tells && let Some(interruption) = watch.breach().and_then(Interruption::of) {
                background.tell(interruption);
            }
            // Until the last of them has ended.
            drop(watch);
            background.0.commands.fetch_sub(1, Ordering::AcqRel);
        });
        started.map(drop).map_err(|source| {
            self.0.commands.fetch_sub(1, Ordering::AcqRel);
            ShellError::Start { source }
        })
    }

    /// What was written from this place on. Reading takes nothing away: a client whose answer was lost asks again.
    pub(crate) fn since(&self, from: u64) -> BackgroundOutput {
        let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is ahead of all that was written is no place of this session's.
        let unread = kept.written.saturating_sub(from);
        let available = unread.min(kept.last.len() as u64);
        let skipped = kept.last.len() - usize::try_from(available).unwrap_or(kept.last.len());
        let bytes = kept.last.iter().skip(skipped).copied().collect();
        let killed = kept.killed.iter().filter(|(place, _)| *place > from).map(|(_, why)| *why).collect();
        BackgroundOutput { bytes, dropped: unread - available, end: kept.written, killed }
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

    /// Says in the jobs' output why they were killed.
    fn tell(&self, interruption: Interruption) {
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.last.back().is_some_and(|byte| *byte != b'\n') {
            kept.keep(b"\n");
        }
        kept.keep(format!("[background jobs were killed: {}]\n", reason(interruption)).as_bytes());
        let place = kept.written;
        kept.killed.push_back((place, interruption));
        if kept.killed.len() > BACKGROUND_KILLS {
            kept.killed.pop_front();
        }
    }

    fn keep(&self, bytes: &[u8]) {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(bytes);
    }
}

impl Kept {
    fn keep(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        self.last.extend(bytes);
        let surplus = self.last.len().saturating_sub(BACKGROUND_BYTES);
        self.last.drain(..surplus);
    }
}

fn reason(interruption: Interruption) -> &'static str {
    match interruption {
        Interruption::Processes => "they had too many processes or threads",
        Interruption::Memory => "they had too much memory",
        Interruption::Hidden => "their memory could not be counted",
        // No watch kills for these.
        Interruption::Timeout | Interruption::Cancelled => "they were not wanted any more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_begins_where_the_last_answer_ended() {
        let background = Background::default();
        assert_eq!(background.since(0), BackgroundOutput::default());
        background.keep(b"one");
        let first = background.since(0);
        assert_eq!((first.bytes.as_slice(), first.dropped, first.end), (&b"one"[..], 0, 3));
        assert_eq!(background.since(0), first, "asking takes nothing away");
        background.keep(b"two");
        assert_eq!(background.since(first.end).bytes, b"two");
        assert_eq!(background.since(6), BackgroundOutput { end: 6, ..BackgroundOutput::default() });
        assert_eq!(background.since(u64::MAX).bytes, b"");
    }

    #[test]
    fn why_jobs_were_killed_is_told_once_and_at_its_place() {
        let background = Background::default();
        background.keep(b"half a line");
        let first = background.since(0);
        background.tell(Interruption::Memory);
        let told = background.since(first.end);
        assert_eq!(told.bytes, b"\n[background jobs were killed: they had too much memory]\n");
        assert_eq!(told.killed, [Interruption::Memory]);
        assert_eq!(background.since(first.end), told, "asking takes nothing away");
        assert_eq!(background.since(told.end).killed, []);
        (0..2 * BACKGROUND_KILLS).for_each(|_| background.tell(Interruption::Processes));
        assert_eq!(background.since(0).killed.len(), BACKGROUND_KILLS);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_not_is_counted() {
        let background = Background::default();
        background.keep(&[b'x'; 10]);
        background.keep(&[b'y'; BACKGROUND_BYTES]);
        let output = background.since(4);
        assert_eq!((output.bytes.len(), output.dropped), (BACKGROUND_BYTES, 6));
        assert!(output.bytes.iter().all(|byte| *byte == b'y'));
        assert_eq!(background.since(12).dropped, 0);
        assert_eq!(background.since(12).bytes.len(), BACKGROUND_BYTES - 2);
    }
}
