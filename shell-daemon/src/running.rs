//! A running command: its output, its deadline, its end.
//!
//! The end of a command has a type at each stage: the command's init sends a [`ShellExit`], the sidecar makes a
//! [`CommandEnd`] of it, and the protocol's `Exited` carries it to the client.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use serde::Serialize;

use crate::{
    CommandRequest, Ending, ProtectedReport, ShellError, StateOutcome,
    background::Background,
    input::Feed,
    kill_stall::{StallDetector, SurvivorState},
    limits::{KILL_TIMEOUT, PIPE_BYTES},
    prepared::{PreparedShell, command_init, is_unread},
    tree::Process,
    watch::{Breach, CommandWatch, Watcher},
    wire::{self, FromCommand, ShellExit},
};

/// A piece of a command's output. The caller gets the pieces in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputChunk<'a> {
    /// The stream that the command wrote the bytes to.
    pub stream: OutputStream,
    /// The bytes, which need not be text.
    pub bytes: &'a [u8],
}

/// An output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The result of a command that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// How the command's shell ended. After an interruption: by signal 9.
    pub ending: Ending,
    /// Whether the command ran to its end.
    pub completion: Completion,
    /// The time from the command's start to its end.
    pub duration: Duration,
    /// Processor time of the shell and of the children that it waited for.
    pub cpu: Duration,
    /// The largest memory of any single one of these processes. For a command that was killed for its memory, at
    /// least the memory of the command and its jobs at the breach.
    pub peak_memory_bytes: u64,
    /// The number of output bytes. At most [`CommandRequest::max_output_bytes`] of them were passed to the caller.
    pub output_bytes: u64,
    /// The shell state that the next command starts with.
    pub state: StateOutcome,
    /// Whether the command left background jobs behind.
    pub jobs_left: bool,
    /// Protected paths that the command made or changed.
    pub protected: ProtectedReport,
}

/// Whether a command ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The command ended by itself.
    Finished,
    /// The command was killed, with all processes that it had started.
    Interrupted(Interruption),
}

portcullis_types::word_enum! {
    /// The reason why a command was killed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    pub enum Interruption {
        /// The command's deadline passed.
        Timeout = "timeout",
        /// The caller cancelled the command.
        Cancelled = "cancelled",
        /// The command had more than [`CommandRequest::max_processes`] or four times as many threads, or its
        /// session had too many.
        Processes = "processes",
        /// The command and its jobs had more memory than [`crate::SessionSpec::limits`] allows, or the session
        /// had too much.
        Memory = "memory",
        /// The command's memory cannot be counted: a process hides its memory, or there are too many mappings.
        MemoryUncountable = "hidden",
    }
}

impl Interruption {
    /// The reason for a kill by the watch. `None` if the watch could not list the processes.
    pub(crate) fn from_breach(breach: Breach) -> Option<Self> {
        match breach {
            Breach::Processes => Some(Self::Processes),
            Breach::Memory => Some(Self::Memory),
            Breach::MemoryUncountable => Some(Self::MemoryUncountable),
            Breach::ProcessesUnlisted => None,
        }
    }
}

/// Whether a prepared shell ran its command.
#[derive(Debug)]
pub(crate) enum PreparedOutcome {
    /// The command ran, to its end or until it was killed.
    Ended(CommandEnd),
    /// The shell was killed while it waited for the command. Nothing was run.
    NotBegun,
}

/// A command that has been started.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    /// Set after the command's init has reported itself.
    watch: Option<CommandWatch>,
    session_init: Process,
    max_processes: usize,
    report: OwnedFd,
    text: OwnedFd,
    stdin: Feed,
    streams: [Option<OwnedFd>; 2],
    started_at: Instant,
    output_bytes: u64,
}

impl RunningCommand {
    /// Starts the command in a prepared shell.
    pub(crate) fn start(
        prepared: PreparedShell,
        session_init: Process,
        watcher: &Watcher,
        request: &CommandRequest,
    ) -> Result<Self, ShellError> {
        let started_at = Instant::now();
        prepared.begin(request.workdir.as_deref().unwrap_or_default(), &request.command)?;
        let PreparedShell { ends, init } = prepared;
        Ok(Self {
            watch: init.map(|init| watcher.watch(init, request.max_processes)).transpose()?,
            session_init,
            max_processes: request.max_processes,
            report: ends.report,
            text: ends.text,
            stdin: Feed::new(ends.stdin, &request.stdin, request.input.as_ref()),
            streams: [Some(ends.stdout), Some(ends.stderr)],
            started_at,
            output_bytes: 0,
        })
    }

    /// Reads output until the shell has ended or was killed.
    pub(crate) fn finish(
        mut self,
        request: &CommandRequest,
        watcher: &Watcher,
        background: &Background,
        on_output: &mut dyn FnMut(OutputChunk<'_>),
    ) -> Result<PreparedOutcome, ShellError> {
        let mut buffer = vec![0; PIPE_BYTES];
        let (end, completion) = self.run_to_end(request, watcher, &mut buffer, on_output)?;
        if completion == Completion::Finished && is_unread(&self.text) {
            // Retry only without streamed input: bytes read from the stream cannot be read again.
            return if request.input.is_none() {
                Ok(PreparedOutcome::NotBegun)
            } else {
                Err(ShellError::NotStarted { reason: "the shell ended before the command began".to_owned() })
            };
        }
        let duration = self.started_at.elapsed();
        self.stdin.close();
        self.read_rest(request, &mut buffer, on_output);
        let output_bytes = self.output_bytes;
        let breach_bytes =
            self.watch.as_ref().and_then(CommandWatch::breach_memory_bytes).unwrap_or_default();
        if end.jobs_left {
            let watch = self.watch.ok_or(ShellError::SessionEnded)?;
            // The command's result already has a breach that ended the command. The jobs must not report it again.
            let is_finished = completion == Completion::Finished;
            let streams = self.streams.into_iter().flatten().collect();
            background.drain(streams, self.report, watch, is_finished)?;
        }
        Ok(PreparedOutcome::Ended(CommandEnd {
            ending: end.ending,
            completion,
            duration,
            cpu: end.cpu,
            peak_memory_bytes: end.peak_memory_bytes.max(breach_bytes),
            output_bytes,
            state: end.state,
            jobs_left: end.jobs_left,
            // The session fills this in, because it knows the mounts.
            protected: ProtectedReport::default(),
        }))
    }

    /// Serves the command until its shell ends. Kills the command at its deadline, on cancellation and on a breach.
    fn run_to_end(
        &mut self,
        request: &CommandRequest,
        watcher: &Watcher,
        buffer: &mut [u8],
        on_output: &mut dyn FnMut(OutputChunk<'_>),
    ) -> Result<(ShellExit, Completion), ShellError> {
        let mut completion = Completion::Finished;
        let deadline =
            self.started_at.checked_add(request.timeout).unwrap_or(self.started_at + UNLIMITED_TIME);
        let mut killing: Option<StallDetector> = None;
        let end = loop {
            let ready = self.wait(deadline, (completion == Completion::Finished).then_some(request))?;
            for index in 0..self.streams.len() {
                if ready.streams[index] {
                    self.read(index, request, buffer, on_output);
                }
            }
            if ready.stdin {
                self.stdin.advance(&request.stdin);
            }
            if ready.report
                && let Some(end) = self.receive_report(watcher)?
            {
                break end;
            }
            if completion != Completion::Finished {
                // Only the command's init is left. It reports the shell's end as soon as it gets a processor.
                if killing.as_mut().is_some_and(|detector| detector.record_sample(1, SurvivorState::Blocked))
                {
                    return Err(ShellError::SessionEnded);
                }
                // Kill again: the init may have started the shell after the last kill.
                self.kill()?;
                continue;
            }
            let interruption = if ready.cancelled {
                Interruption::Cancelled
            } else if Instant::now() >= deadline {
                Interruption::Timeout
            } else if let Some(interruption) = self.breach()? {
                interruption
            } else {
                continue;
            };
            completion = Completion::Interrupted(interruption);
            killing = Some(StallDetector::new(KILL_TIMEOUT));
            self.stdin.close();
            self.kill()?;
        };
        // The watch kills after it has recorded a breach. The shell's end can arrive before this loop sees the
        // breach, so look once more.
        if completion == Completion::Finished
            && let Some(interruption) = self.breach()?
        {
            completion = Completion::Interrupted(interruption);
            // The watch may still be killing: the shell is not always the last process that dies.
            self.kill()?;
        }
        Ok((end, completion))
    }

    /// Reads each pipe empty, at most [`PIPE_BYTES`]. Bytes written before the shell's end belong to the command,
    /// later bytes to its jobs.
    fn read_rest(
        &mut self,
        request: &CommandRequest,
        buffer: &mut [u8],
        on_output: &mut dyn FnMut(OutputChunk<'_>),
    ) {
        for index in 0..self.streams.len() {
            let mut remaining_bytes = PIPE_BYTES;
            while remaining_bytes > 0 {
                match self.read(index, request, &mut buffer[..remaining_bytes], on_output) {
                    0 => break,
                    read => remaining_bytes -= read,
                }
            }
        }
    }

    /// Waits for any event, at most until `deadline`. `request` is `None` while the command is being killed. The
    /// wait then ignores cancellation and lasts at most [`MAX_KILL_PAUSE`].
    fn wait(&self, deadline: Instant, request: Option<&CommandRequest>) -> Result<ReadyStreams, ShellError> {
        let mut poll_fds = vec![PollFd::new(&self.report, PollFlags::IN)];
        for stream in self.streams.iter().flatten() {
            poll_fds.push(PollFd::new(stream, PollFlags::IN));
        }
        let before = poll_fds.len();
        poll_fds.extend(self.stdin.poll_fds());
        let stdin_fds = poll_fds.len() - before;
        poll_fds.extend(
            request.map(|request| PollFd::from_borrowed_fd(request.cancellation.handle(), PollFlags::IN)),
        );
        // While the command is being killed, the watch's eventfd stays readable and would end every wait
        // immediately.
        let watch = request.and(self.watch.as_ref());
        poll_fds.extend(watch.map(|watch| PollFd::new(watch, PollFlags::IN)));
        let mut remaining_time = MAX_KILL_PAUSE;
        if request.is_some() {
            remaining_time = deadline.saturating_duration_since(Instant::now());
        }
        // If the kernel cannot express the timeout, wait without one.
        let time = Timespec::try_from(remaining_time).ok();
        match poll(&mut poll_fds, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(ShellError::channel(errno)),
        }
        let mut ready = poll_fds.iter().map(|poll_fd| !poll_fd.revents().is_empty());
        let mut next_ready = |is_watched: bool| is_watched && ready.next().unwrap_or_default();
        Ok(ReadyStreams {
            report: next_ready(true),
            streams: [next_ready(self.streams[0].is_some()), next_ready(self.streams[1].is_some())],
            stdin: (0..stdin_fds).fold(false, |any, _| next_ready(true) || any),
            cancelled: next_ready(request.is_some()),
        })
    }

    /// Reads once from a stream, and passes the bytes within the output limit to the caller. Returns the number of
    /// bytes read, 0 if there are none now.
    fn read(
        &mut self,
        index: usize,
        request: &CommandRequest,
        buffer: &mut [u8],
        on_output: &mut dyn FnMut(OutputChunk<'_>),
    ) -> usize {
        let Some(stream) = &self.streams[index] else { return 0 };
        let read = match rustix::io::read(stream, &mut *buffer) {
            Ok(read) if read > 0 => read,
            Err(Errno::AGAIN | Errno::INTR) => return 0,
            Ok(_) | Err(_) => {
                self.streams[index] = None;
                return 0;
            }
        };
        let room = request.max_output_bytes.saturating_sub(self.output_bytes);
        self.output_bytes = self.output_bytes.saturating_add(read as u64);
        let forwarded = usize::try_from(room).map_or(read, |room| room.min(read));
        if forwarded > 0 {
            let stream = if index == 0 { OutputStream::Stdout } else { OutputStream::Stderr };
            on_output(OutputChunk { stream, bytes: &buffer[..forwarded] });
        }
        read
    }

    /// Receives one report. Returns the shell's end if the report is one.
    fn receive_report(&mut self, watcher: &Watcher) -> Result<Option<ShellExit>, ShellError> {
        let received = wire::receive_from(self.report.as_fd()).map_err(ShellError::channel)?;
        match received.map(|received| (received.message, received.sender)) {
            Some((FromCommand::Started, sender)) => {
                let init = command_init(self.session_init, sender);
                self.watch = init.map(|init| watcher.watch(init, self.max_processes)).transpose()?;
                Ok(None)
            }
            Some((FromCommand::Failed { reason }, _)) => Err(ShellError::NotStarted { reason }),
            Some((FromCommand::Ended(end), _)) => Ok(Some(end)),
            // The command's init was killed, usually by the command itself.
            None => Err(ShellError::SessionEnded),
        }
    }

    /// Kills all processes of the command.
    fn kill(&self) -> Result<(), ShellError> {
        // Without a report of its init, the command has not started a process yet.
        self.watch.as_ref().map_or(Ok(()), CommandWatch::kill)
    }

    /// Returns the breach for which the watch has killed the command or is about to kill it.
    fn breach(&self) -> Result<Option<Interruption>, ShellError> {
        let breach = self.watch.as_ref().and_then(CommandWatch::breach);
        breach.map(|breach| Interruption::from_breach(breach).ok_or(ShellError::Unwatched)).transpose()
    }
}

struct ReadyStreams {
    report: bool,
    streams: [bool; 2],
    stdin: bool,
    cancelled: bool,
}

/// The maximum pause between two kills of a command that is being killed.
const MAX_KILL_PAUSE: Duration = Duration::from_millis(5);

/// Stands in for a deadline that the clock cannot express.
const UNLIMITED_TIME: Duration = Duration::from_secs(1 << 31);
