//! A running command: its output, its deadline, its end.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{
    CommandRequest, Ending, ProtectedFound, ShellError, StateAfter,
    background::Background,
    input::Feed,
    kill_stall::{StallDetector, Survivors},
    limits::{LONGEST_KILL, PIPE_BYTES},
    prepared::{PreparedShell, init_of, is_unread},
    tree::Process,
    watch::{Breach, CommandWatch, Watcher},
    wire::{self, FromCommand, ShellEnd},
};

/// A piece of output, in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputChunk<'a> {
    /// The stream that it was written to.
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

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// How its shell ended: signal 9 after an interruption.
    pub ending: Ending,
    /// Whether it ran to its end.
    pub completion: Completion,
    /// From its start to its end.
    pub duration: Duration,
    /// Processor time of the shell and of the children that it waited for.
    pub cpu: Duration,
    /// The largest memory of any one of these processes. For a command that was killed for its memory, at
    /// least the memory that it and its jobs had then.
    pub peak_memory_bytes: u64,
    /// How many bytes it wrote, of which at most [`CommandRequest::max_output_bytes`] were handed on.
    pub output_bytes: u64,
    /// The state that the next command begins with.
    pub state: StateAfter,
    /// Whether it left background jobs behind.
    pub jobs_left: bool,
    /// Protected paths that it made or changed.
    pub protected: ProtectedFound,
}

/// Whether a command ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It ended by itself.
    Whole,
    /// It was killed, with all processes that it had started.
    Interrupted(Interruption),
}

/// The reason why a command was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// Its deadline passed.
    Timeout,
    /// Its caller cancelled it.
    Cancelled,
    /// It had more than [`CommandRequest::max_processes`] or four times as many threads, or its session had
    /// too many.
    Processes,
    /// It and its jobs had more memory than [`crate::SessionSpec::limits`] allows, or its session had too
    /// much.
    Memory,
    /// Its memory cannot be counted: a process hides its memory, or there are too many mappings.
    Hidden,
}

impl Interruption {
    /// The reason for a watch's kill; `None` if the watch could not look.
    pub(crate) fn of(breach: Breach) -> Option<Self> {
        match breach {
            Breach::Processes => Some(Self::Processes),
            Breach::Memory => Some(Self::Memory),
            Breach::Hidden => Some(Self::Hidden),
            Breach::Unlisted => None,
        }
    }
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) enum CommandOutcome {
    Ended(CommandEnd),
    /// Its shell was killed while it waited for the command. It has run nothing.
    NotBegun,
}

/// A command that has been started.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    /// Set once the command's init has reported itself.
    watch: Option<CommandWatch>,
    session_init: Process,
    max_processes: usize,
    report: OwnedFd,
    text: OwnedFd,
    stdin: Feed,
    streams: [Option<OwnedFd>; 2],
    started: Instant,
    output_bytes: u64,
}

impl RunningCommand {
    /// Lets the command begin in a prepared shell.
    pub(crate) fn start(
        prepared: PreparedShell,
        session_init: Process,
        watcher: &Watcher,
        request: &CommandRequest,
    ) -> Result<Self, ShellError> {
        let started = Instant::now();
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
            started,
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
    ) -> Result<CommandOutcome, ShellError> {
        let mut buffer = vec![0; PIPE_BYTES];
        let (end, completion) = self.run_to_end(request, watcher, &mut buffer, on_output)?;
        if completion == Completion::Whole && is_unread(&self.text) {
            // Retry only without streamed input: bytes that were taken from it cannot be given again.
            return if request.input.is_none() {
                Ok(CommandOutcome::NotBegun)
            } else {
                Err(ShellError::NotStarted { reason: "the shell ended before the command began".to_owned() })
            };
        }
        let duration = self.started.elapsed();
        self.stdin.close();
        self.read_rest(request, &mut buffer, on_output);
        let output_bytes = self.output_bytes;
        let of_breach = self.watch.as_ref().and_then(CommandWatch::memory_of_breach).unwrap_or_default();
        if end.jobs_left {
            let watch = self.watch.ok_or(ShellError::SessionEnded)?;
            // A breach that ended the command is reported with the command, and not as a kill of its jobs.
            let is_whole = completion == Completion::Whole;
            background.drain(self.streams.into_iter().flatten().collect(), self.report, watch, is_whole)?;
        }
        Ok(CommandOutcome::Ended(CommandEnd {
            ending: end.ending,
            completion,
            duration,
            cpu: end.cpu,
            peak_memory_bytes: end.peak_memory_bytes.max(of_breach),
            output_bytes,
            state: end.state,
            jobs_left: end.jobs_left,
            // Filled in by the session, which knows the mounts.
            protected: ProtectedFound::default(),
        }))
    }

    /// Serves the command until its shell ends. Kills it at its deadline, when cancelled, and on a breach.
    fn run_to_end(
        &mut self,
        request: &CommandRequest,
        watcher: &Watcher,
        buffer: &mut [u8],
        on_output: &mut dyn FnMut(OutputChunk<'_>),
    ) -> Result<(ShellEnd, Completion), ShellError> {
        let mut completion = Completion::Whole;
        let deadline = self.started.checked_add(request.timeout).unwrap_or(self.started + WITHOUT_END);
        let mut killing: Option<StallDetector> = None;
        let end = loop {
            let ready = self.wait(deadline, (completion == Completion::Whole).then_some(request))?;
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
            if completion != Completion::Whole {
                // Only the command's init is left. It reports the shell's end as soon as it gets a processor.
                if killing.as_mut().is_some_and(|detector| detector.is_over(1, Survivors::Blocked)) {
                    return Err(ShellError::SessionEnded);
                }
                // Kill again: the init may have started the shell after the last look.
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
            killing = Some(StallDetector::new(LONGEST_KILL));
            self.stdin.close();
            self.kill()?;
        };
        // The watch records a breach before it kills, so the shell's end can arrive here before the breach
        // was seen.
        if completion == Completion::Whole
            && let Some(interruption) = self.breach()?
        {
            completion = Completion::Interrupted(interruption);
            // The watch's kill may still be under way: the shell need not be the last process that dies.
            self.kill()?;
        }
        Ok((end, completion))
    }

    /// Reads the pipes empty, up to a bound: bytes from before the end are the command's, later ones the
    /// jobs'.
    fn read_rest(
        &mut self,
        request: &CommandRequest,
        buffer: &mut [u8],
        on_output: &mut dyn FnMut(OutputChunk<'_>),
    ) {
        for index in 0..self.streams.len() {
            let mut left = PIPE_BYTES;
            while left > 0 {
                match self.read(index, request, &mut buffer[..left], on_output) {
                    0 => break,
                    read => left -= read,
                }
            }
        }
    }

    /// Waits for any event, at most until `deadline`. `request` is `None` while the command is being killed:
    /// a cancellation is not awaited then, and each wait is at most [`PAUSE`].
    fn wait(&self, deadline: Instant, request: Option<&CommandRequest>) -> Result<ReadyStreams, ShellError> {
        let mut watched = vec![PollFd::new(&self.report, PollFlags::IN)];
        for stream in self.streams.iter().flatten() {
            watched.push(PollFd::new(stream, PollFlags::IN));
        }
        let before = watched.len();
        watched.extend(self.stdin.watched());
        let of_stdin = watched.len() - before;
        watched.extend(
            request.map(|request| PollFd::from_borrowed_fd(request.cancellation.handle(), PollFlags::IN)),
        );
        // While the command is being killed, its watch's eventfd stays readable and would end every wait at
        // once.
        let watch = request.and(self.watch.as_ref());
        watched.extend(watch.map(|watch| PollFd::new(watch, PollFlags::IN)));
        let mut left = PAUSE;
        if request.is_some() {
            left = deadline.saturating_duration_since(Instant::now());
        }
        // Without a timeout if the kernel cannot express this one.
        let time = Timespec::try_from(left).ok();
        match poll(&mut watched, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(ShellError::channel(errno)),
        }
        let mut ready = watched.iter().map(|one| !one.revents().is_empty());
        let mut next = |is_watched: bool| is_watched && ready.next().unwrap_or_default();
        Ok(ReadyStreams {
            report: next(true),
            streams: [next(self.streams[0].is_some()), next(self.streams[1].is_some())],
            stdin: (0..of_stdin).fold(false, |any, _| next(true) || any),
            cancelled: next(request.is_some()),
        })
    }

    /// Reads once from a stream and hands on the bytes within the limit; 0 if there is nothing now.
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
        let handed_on = usize::try_from(room).map_or(read, |room| room.min(read));
        if handed_on > 0 {
            let stream = if index == 0 { OutputStream::Stdout } else { OutputStream::Stderr };
            on_output(OutputChunk { stream, bytes: &buffer[..handed_on] });
        }
        read
    }

    /// Receives one report; returns the shell's end if it is that.
    fn receive_report(&mut self, watcher: &Watcher) -> Result<Option<ShellEnd>, ShellError> {
        let received = wire::receive_from(self.report.as_fd()).map_err(ShellError::channel)?;
        match received.map(|received| (received.message, received.sender)) {
            Some((FromCommand::Started, sender)) => {
                let init = init_of(self.session_init, sender);
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

    /// The breach for which the watch has killed the command, or is about to.
    fn breach(&self) -> Result<Option<Interruption>, ShellError> {
        let breach = self.watch.as_ref().and_then(CommandWatch::breach);
        breach.map(|breach| Interruption::of(breach).ok_or(ShellError::Unwatched)).transpose()
    }
}

struct ReadyStreams {
    report: bool,
    streams: [bool; 2],
    stdin: bool,
    cancelled: bool,
}

/// The longest wait between two kills of a command that is being killed.
const PAUSE: Duration = Duration::from_millis(5);

/// Stands in for a deadline that the clock cannot express.
const WITHOUT_END: Duration = Duration::from_secs(1 << 31);
