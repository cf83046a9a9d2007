//! Output of background jobs after their command has ended. It is read so that the jobs do not block, and its
//! last part is kept.

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
    watch::CommandWatch,
};

/// The background jobs of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background(Arc<SharedBackground>);

#[derive(Debug, Default)]
struct SharedBackground {
    kept: Mutex<KeptOutput>,
    commands: AtomicUsize,
}

/// The last part of the output, and the total written.
#[derive(Debug, Default)]
struct KeptOutput {
    last: VecDeque<u8>,
    written: u64,
    /// Each kill by a watch: its position in the whole output, and its reason.
    killed: VecDeque<(u64, Interruption)>,
}

/// Output of background jobs after their commands had ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackgroundOutput {
    /// Its last part, at most 64 KiB.
    pub bytes: Vec<u8>,
    /// How many bytes before that are lost.
    pub dropped: u64,
    /// Its end as a position counted from the session's start; the next request continues from here.
    pub end: u64,
    /// The reasons for which a watch killed jobs in this range. `bytes` has a line about each kill too, but a
    /// job could have written such a line itself.
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

    /// Reads `streams` on a new thread until `report` closes, which happens with the end of the command's
    /// last process. `watch` is kept until then. With `tells`, a kill by the watch is written into the
    /// output.
    pub(crate) fn drain(
        &self,
        streams: Vec<OwnedFd>,
        report: OwnedFd,
        watch: CommandWatch,
        tells: bool,
    ) -> Result<(), ShellError> {
        self.0.commands.fetch_add(1, Ordering::AcqRel);
        let background = self.clone();
        let started = thread::Builder::new().name("shell-background".to_owned()).spawn(move || {
            background.read(streams, &report);
            if tells && let Some(interruption) = watch.breach().and_then(Interruption::of) {
                background.note_kill(interruption);
            }
            // Keep the watch until the last job has ended.
            drop(watch);
            background.0.commands.fetch_sub(1, Ordering::AcqRel);
        });
        started.map(drop).map_err(|source| {
            self.0.commands.fetch_sub(1, Ordering::AcqRel);
            ShellError::Start { source }
        })
    }

    /// The output from position `from` on. Reading removes nothing: a client that lost an answer asks again.
    pub(crate) fn since(&self, from: u64) -> BackgroundOutput {
        let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // A position beyond the end is not from this session: nothing is unread.
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
            // Both streams are non-blocking, see `prepared.rs`.
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

    /// Writes the reason of a kill into the jobs' output.
    fn note_kill(&self, interruption: Interruption) {
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

impl KeptOutput {
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
        // Never the reason of a watch's kill.
        Interruption::Timeout | Interruption::Cancelled => "they were not wanted any more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_continues_where_the_last_answer_ended() {
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
    fn kill_notice_appears_once_and_in_order() {
        let background = Background::default();
        background.keep(b"half a line");
        let first = background.since(0);
        background.note_kill(Interruption::Memory);
        let told = background.since(first.end);
        assert_eq!(told.bytes, b"\n[background jobs were killed: they had too much memory]\n");
        assert_eq!(told.killed, [Interruption::Memory]);
        assert_eq!(background.since(first.end), told, "asking takes nothing away");
        assert_eq!(background.since(told.end).killed, []);
        (0..2 * BACKGROUND_KILLS).for_each(|_| background.note_kill(Interruption::Processes));
        assert_eq!(background.since(0).killed.len(), BACKGROUND_KILLS);
    }

    #[test]
    fn kept_output_is_bounded_and_dropped_bytes_counted() {
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
