//! Reads the output of background jobs after their command has ended, so that no job blocks on a full pipe. Only the
//! last part of the output is kept.

use std::{
    collections::VecDeque,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{
    Interruption, ShellError,
    limits::{MAX_BACKGROUND_BYTES, MAX_BACKGROUND_COMMANDS, MAX_BACKGROUND_KILLS},
    watch::CommandWatch,
};

/// The background jobs of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background(Arc<SharedBackground>);

#[derive(Debug, Default)]
struct SharedBackground {
    output: Mutex<OutputBuffer>,
    commands: AtomicUsize,
}

/// The last part of the output, and the total written.
#[derive(Debug, Default)]
struct OutputBuffer {
    tail: VecDeque<u8>,
    written_bytes: u64,
    /// Each kill by a watch: its position in the whole output, and its reason.
    killed: VecDeque<(u64, Interruption)>,
}

/// Output of background jobs after their commands had ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackgroundOutput {
    /// The last part of the output, at most 64 KiB.
    pub bytes: Vec<u8>,
    /// The number of bytes before `bytes` that were lost.
    pub dropped_bytes: u64,
    /// Position of the output's end, in bytes since the session's start. The next request continues from here.
    pub end: u64,
    /// Why a watch killed jobs in this range. `bytes` has a line about each kill too, but a job could have written such
    /// a line itself.
    pub killed: Vec<Interruption>,
}

impl Background {
    /// Checks that a further command may leave jobs behind.
    ///
    /// # Errors
    /// [`ShellError::TooManyBackgroundCommands`] if it may not.
    pub(crate) fn require_room(&self) -> Result<(), ShellError> {
        let count = self.0.commands.load(Ordering::Acquire);
        if count < MAX_BACKGROUND_COMMANDS {
            Ok(())
        } else {
            Err(ShellError::TooManyBackgroundCommands { count })
        }
    }

    /// Reads `streams` on a new thread, and keeps `watch`, until `report` closes. It closes when the command's last
    /// process ends. With `reports_kill`, a kill by the watch is written into the output.
    pub(crate) fn drain(
        &self,
        streams: Vec<OwnedFd>,
        report: OwnedFd,
        watch: CommandWatch,
        reports_kill: bool,
    ) -> Result<(), ShellError> {
        // Count before the thread starts, because the thread subtracts the command at its end.
        self.0.commands.fetch_add(1, Ordering::AcqRel);
        let background = self.clone();
        let started = thread::Builder::new().name("shell-background".to_owned()).spawn(move || {
            background.read(streams, &report);
            if reports_kill && let Some(interruption) = watch.breach().and_then(Interruption::from_breach) {
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

    /// The output from position `start` on. Reading removes nothing, so a client that lost an answer can ask again.
    pub(crate) fn output_since(&self, start: u64) -> BackgroundOutput {
        let output = self.0.output.lock();
        // A position beyond the end is not from this session: nothing is unread.
        let unread = output.written_bytes.saturating_sub(start);
        let available = unread.min(output.tail.len() as u64);
        let skipped = output.tail.len() - usize::try_from(available).unwrap_or(output.tail.len());
        let bytes = output.tail.iter().skip(skipped).copied().collect();
        let killed =
            output.killed.iter().filter(|(position, _)| *position > start).map(|(_, why)| *why).collect();
        BackgroundOutput { bytes, dropped_bytes: unread - available, end: output.written_bytes, killed }
    }

    fn read(&self, mut streams: Vec<OwnedFd>, report: &OwnedFd) {
        let mut chunk = vec![0; MAX_BACKGROUND_BYTES];
        loop {
            let mut poll_fds = vec![PollFd::new(report, PollFlags::IN)];
            poll_fds
                .extend(streams.iter().map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)));
            match poll(&mut poll_fds, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            let command_ended = !poll_fds[0].revents().is_empty();
            drop(poll_fds);
            // Both streams are non-blocking, see `prepared.rs`.
            let mut read_any = false;
            streams.retain(|stream| match rustix::io::read(stream, &mut chunk) {
                Ok(0) => false,
                Ok(read) => {
                    read_any = true;
                    self.append(&chunk[..read]);
                    true
                }
                Err(Errno::AGAIN | Errno::INTR) => true,
                Err(_) => false,
            });
            // After the report has closed, read until the pipes are empty.
            if command_ended && !read_any {
                return;
            }
        }
    }

    /// Writes the reason of a kill into the jobs' output.
    fn note_kill(&self, interruption: Interruption) {
        let mut output = self.0.output.lock();
        if output.tail.back().is_some_and(|byte| *byte != b'\n') {
            output.append(b"\n");
        }
        output.append(format!("[background jobs were killed: {}]\n", reason(interruption)).as_bytes());
        let position = output.written_bytes;
        output.killed.push_back((position, interruption));
        if output.killed.len() > MAX_BACKGROUND_KILLS {
            output.killed.pop_front();
        }
    }

    fn append(&self, bytes: &[u8]) {
        self.0.output.lock().append(bytes);
    }
}

impl OutputBuffer {
    fn append(&mut self, bytes: &[u8]) {
        self.written_bytes += bytes.len() as u64;
        self.tail.extend(bytes);
        let surplus = self.tail.len().saturating_sub(MAX_BACKGROUND_BYTES);
        self.tail.drain(..surplus);
    }
}

fn reason(interruption: Interruption) -> &'static str {
    match interruption {
        Interruption::Processes => "they had too many processes or threads",
        Interruption::Memory => "they had too much memory",
        Interruption::MemoryUncountable => "their memory could not be counted",
        // A watch never kills for these reasons.
        Interruption::Timeout | Interruption::Cancelled => "they were cancelled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_continues_where_the_last_answer_ended() {
        let background = Background::default();
        assert_eq!(background.output_since(0), BackgroundOutput::default());
        background.append(b"one");
        let first = background.output_since(0);
        assert_eq!((first.bytes.as_slice(), first.dropped_bytes, first.end), (&b"one"[..], 0, 3));
        assert_eq!(background.output_since(0), first, "asking takes nothing away");
        background.append(b"two");
        assert_eq!(background.output_since(first.end).bytes, b"two");
        assert_eq!(background.output_since(6), BackgroundOutput { end: 6, ..BackgroundOutput::default() });
        assert_eq!(background.output_since(u64::MAX).bytes, b"");
    }

    #[test]
    fn kill_notice_appears_once_and_in_order() {
        let background = Background::default();
        background.append(b"half a line");
        let first = background.output_since(0);
        background.note_kill(Interruption::Memory);
        let after_kill = background.output_since(first.end);
        assert_eq!(after_kill.bytes, b"\n[background jobs were killed: they had too much memory]\n");
        assert_eq!(after_kill.killed, [Interruption::Memory]);
        assert_eq!(background.output_since(first.end), after_kill, "asking takes nothing away");
        assert_eq!(background.output_since(after_kill.end).killed, []);
        (0..2 * MAX_BACKGROUND_KILLS).for_each(|_| background.note_kill(Interruption::Processes));
        assert_eq!(background.output_since(0).killed.len(), MAX_BACKGROUND_KILLS);
    }

    #[test]
    fn kept_output_is_bounded_and_dropped_bytes_counted() {
        let background = Background::default();
        background.append(&[b'x'; 10]);
        background.append(&[b'y'; MAX_BACKGROUND_BYTES]);
        let output = background.output_since(4);
        assert_eq!((output.bytes.len(), output.dropped_bytes), (MAX_BACKGROUND_BYTES, 6));
        assert!(output.bytes.iter().all(|byte| *byte == b'y'));
        assert_eq!(background.output_since(12).dropped_bytes, 0);
        assert_eq!(background.output_since(12).bytes.len(), MAX_BACKGROUND_BYTES - 2);
    }
}
