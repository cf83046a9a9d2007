//! A command's standard input: first the bytes of its request, then bytes that another thread writes while the command
//! runs.
//!
//! The queue between the two threads is a pipe. The kernel limits its size, wakes either side, and tells each side when
//! the other is gone. No lock is needed while a command runs.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    pipe::{PipeFlags, SpliceFlags},
};

use crate::{InputError, limits::INPUT_BYTES};

/// The reading end, for [`crate::CommandRequest::input`]. It serves one command. A later command reads an input that
/// has ended.
#[derive(Debug)]
pub struct CommandInput(Mutex<Option<OwnedFd>>);

/// The writing end. Dropping it ends the input. The command can still read up to 64 KiB that were written
/// before.
#[derive(Debug)]
pub struct InputWriter(OwnedFd);

impl CommandInput {
    /// Makes both ends.
    ///
    /// # Errors
    /// The system's error if no descriptor is left.
    pub fn new() -> io::Result<(Self, InputWriter)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok((Self(Mutex::new(Some(read))), InputWriter(write)))
    }

    fn take(&self) -> Option<OwnedFd> {
        self.0.lock().take()
    }
}

impl InputWriter {
    /// Writes all of `bytes`. This blocks while the command reads more slowly, at most until the command ends or its
    /// request is dropped.
    ///
    /// # Errors
    /// [`InputError::Closed`] if the command has closed its standard input or has ended. Some of `bytes` may have been
    /// read.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), InputError> {
        let mut unwritten = bytes;
        while !unwritten.is_empty() {
            match self.try_write(unwritten) {
                Ok(written) => unwritten = &unwritten[written..],
                Err(InputError::Full) => match poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(InputError::Pipe { source: errno.into() }),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes as many bytes as there is room for, without blocking, and returns their number. It is 0 only if `bytes`
    /// is empty.
    ///
    /// # Errors
    /// [`InputError::Full`] if 64 KiB wait to be read. [`InputWriter::as_fd`] becomes writable when there is room
    /// again. [`InputError::Closed`] if the command has closed its standard input or has ended.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<usize, InputError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.0, bytes)) {
            Ok(written) => Ok(written),
            Err(Errno::AGAIN) => Err(InputError::Full),
            Err(Errno::PIPE) => Err(InputError::Closed),
            Err(errno) => Err(InputError::Pipe { source: errno.into() }),
        }
    }

    /// Ends the input, like a drop.
    pub fn close(self) {
        drop(self);
    }
}

/// The descriptor is writable when there is room, and when the command has closed its standard input.
impl AsFd for InputWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// For callers with their own event loop. Writes do not block.
impl From<InputWriter> for OwnedFd {
    fn from(writer: InputWriter) -> Self {
        writer.0
    }
}

/// The sidecar's end of a command's standard input.
#[derive(Debug)]
pub(crate) struct Feed {
    /// `None` once the input has ended, or the command has closed its standard input.
    pipe: Option<OwnedFd>,
    /// The number of the request's bytes that have been written.
    written_bytes: usize,
    streamed_input: Option<OwnedFd>,
    /// Whether `pipe` is polled for room. If not, `streamed_input` is polled for data. Only one of the two is polled at a
    /// time, because the other would always be ready.
    is_waiting_for_room: bool,
}

impl Feed {
    /// A feed for `pipe`, which must be non-blocking. Without any input, `pipe` is closed immediately.
    pub(crate) fn new(pipe: OwnedFd, initial: &[u8], input: Option<&CommandInput>) -> Self {
        let streamed = input.and_then(CommandInput::take);
        let pipe = (!initial.is_empty() || streamed.is_some()).then_some(pipe);
        Self { pipe, written_bytes: 0, streamed_input: streamed, is_waiting_for_room: true }
    }

    /// Returns the descriptors to poll before the next [`Feed::advance`].
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        // Without flags `poll` still reports a command that has closed its input.
        let flags = if self.is_waiting_for_room { PollFlags::OUT } else { PollFlags::empty() };
        let pipe = self.pipe.as_ref().map(|pipe| PollFd::new(pipe, flags));
        let streamed =
            self.streamed_input.as_ref().filter(|_| self.pipe.is_some() && !self.is_waiting_for_room);
        pipe.into_iter().chain(streamed.map(|streamed| PollFd::new(streamed, PollFlags::IN)))
    }

    /// Moves as many bytes as possible now. `initial` has the request's bytes, which must be equal at each call.
    pub(crate) fn advance(&mut self, initial: &[u8]) {
        let Some(pipe) = &self.pipe else { return };
        let unwritten = &initial[self.written_bytes..];
        if !unwritten.is_empty() {
            match rustix::io::write(pipe, unwritten) {
                Ok(written) => self.written_bytes += written,
                Err(Errno::AGAIN | Errno::INTR) => return,
                // The command has closed its input, which is not an error.
                Err(_) => return self.close(),
            }
            if self.written_bytes < initial.len() {
                return;
            }
        }
        let Some(streamed) = &self.streamed_input else { return self.close() };
        // `splice` examines `streamed_input` first, so without data it does not report that the command has closed
        // its input.
        if !self.is_waiting_for_room && has_no_reader(pipe) {
            return self.close();
        }
        match rustix::pipe::splice(streamed, None, pipe, None, INPUT_BYTES, SpliceFlags::NONBLOCK) {
            // The input has ended: the writer is gone and its pipe is empty.
            Ok(0) => self.close(),
            Ok(_) => self.is_waiting_for_room = false,
            // `EAGAIN` means that `streamed_input` is empty or `pipe` is full, but not which. Wait for the other pipe now.
            Err(Errno::AGAIN) => self.is_waiting_for_room = !self.is_waiting_for_room,
            Err(Errno::INTR) => {}
            Err(_) => self.close(),
        }
    }

    /// Ends the input. The writer gets [`InputError::Closed`].
    pub(crate) fn close(&mut self) {
        (self.pipe, self.streamed_input) = (None, None);
    }
}

/// Whether the reading end of a pipe is closed everywhere.
fn has_no_reader(pipe: &OwnedFd) -> bool {
    let mut poll_fds = [PollFd::new(pipe, PollFlags::empty())];
    let no_wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut poll_fds, Some(&no_wait)).is_ok_and(|ready| ready > 0)
}
