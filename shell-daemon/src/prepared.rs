//! A shell that waits for its command: started after the last command's end, while nobody waits for it.
//!
//! Starting bash and giving it the last state takes longer than most commands. All that a shell needs, its
//! standard streams included, therefore comes before the command does; then come the command's text, in a
//! memory file that both sides have, and a line in a pipe.

use std::{
    io::{self, ErrorKind},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use portcullis_confine::ProcessUser;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, OFlags, SealFlags},
    pipe::PipeFlags,
    process::{Gid, Pid, Uid},
};

use crate::{
    ShellError,
    limits::{COMMAND_BYTES, PIPE_BYTES, SNAPSHOT_BYTES},
    tree::Process,
    wire::{self, FromCommand, ToSession},
};

/// What a shell will be asked for with.
#[derive(Debug)]
pub(crate) struct Streams {
    ours: Ends,
    theirs: [OwnedFd; 7],
}

/// The daemon's ends.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) report: OwnedFd,
    /// The place in it is the shell's as well.
    pub(crate) text: OwnedFd,
    go: OwnedFd,
}

/// A shell that was asked for.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) ends: Ends,
    /// The command's init, once it has said who it is.
    pub(crate) init: Option<Process>,
}

impl Streams {
    pub(crate) fn new(user: Option<ProcessUser>) -> Result<Self, ShellError> {
        Self::open(user).map_err(ShellError::channel)
    }

    fn open(user: Option<ProcessUser>) -> io::Result<Self> {
        let (report, their_report) = wire::pair()?;
        let (their_stdin, stdin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, their_stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, their_stderr) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (their_go, go) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        for ours in [&stdin, &stdout, &stderr] {
            // On our ends only: each end of a pipe has flags of its own.
            rustix::fs::fcntl_setfl(ours, OFlags::NONBLOCK)?;
        }
        if let Some(user) = user {
            // Programs open `/dev/stdout` by its name, which asks for its owner.
            for theirs in [&their_stdin, &their_stdout, &their_stderr] {
                let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
                rustix::fs::fchown(theirs, Some(uid), Some(gid))?;
            }
        }
        // More per read; where the user's share of pipe memory is used up the usual size has to do. A session has
        // two such pairs at most, so of errors, which are few as a rule, less.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);
        let _ = rustix::pipe::fcntl_setpipe_size(&stderr, PIPE_BYTES / 4);
        // Without a name: arguments are limited to 128 KiB and visible to others.
        let text = memory_file("command", TEXT_BYTES)?;
        let their_text = text.try_clone()?;
        // Made here, since no process of a session may make a file in memory.
        let state = memory_file("state", SNAPSHOT_BYTES)?;
        Ok(Self {
            ours: Ends { stdin, stdout, stderr, report, text, go },
            theirs: [their_text, their_stdin, their_stdout, their_stderr, their_report, their_go, state],
        })
    }

    /// Asks a session for the shell. Its last command must have ended: the state that it left is this shell's.
    pub(crate) fn send(self, control: BorrowedFd<'_>) -> Result<Prepared, ShellError> {
        let handles: Vec<BorrowedFd<'_>> = self.theirs.iter().map(|handle| handle.as_fd()).collect();
        wire::send(control, &ToSession::Prepare, &handles).map_err(told)?;
        Ok(Prepared { ends: self.ours, init: None })
    }
}

impl Prepared {
    /// Whether the shell is there or about to be. One that was killed while it waited, or that could not be
    /// started, has run nothing, so that another can take its place.
    pub(crate) fn is_usable(&mut self, session_init: Process) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            match poll(&mut [PollFd::new(&self.ends.report, PollFlags::IN)], Some(&now)) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
            let Ok(Some(received)) = wire::receive_from(self.ends.report.as_fd()) else { return false };
            match received.message {
                FromCommand::Started => self.init = init_of(session_init, received.sender),
                FromCommand::Failed { .. } | FromCommand::Ended(_) => return false,
            }
        }
    }

    /// Lets the command begin, in `workdir` if that is not empty. Neither holds a NUL.
    pub(crate) fn begin(&self, workdir: &str, command: &str) -> Result<(), ShellError> {
        let text = format!("{workdir}\0{command}\0");
        let mut written = 0;
        while written < text.len() {
            // The place in the file is shared with the shell, which reads from its beginning.
            let more = &text.as_bytes()[written..];
            written +=
                rustix::io::pwrite(&self.ends.text, more, written as u64).map_err(ShellError::channel)?;
        }
        match rustix::io::write(&self.ends.go, b"\n") {
            // A shell that is gone says so by its report.
            Ok(_) | Err(rustix::io::Errno::PIPE) => Ok(()),
            Err(errno) => Err(ShellError::channel(errno)),
        }
    }
}

/// A file of zeros in memory that can be neither longer nor shorter: sessions write to it.
pub(crate) fn memory_file(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// A folder and a command, each with a zero after it.
const TEXT_BYTES: u64 = 2 * (COMMAND_BYTES as u64 + 1);

/// Whether a shell has not even begun to read the command's text.
pub(crate) fn is_unread(text: &OwnedFd) -> bool {
    rustix::fs::tell(text).is_ok_and(|place| place == 0)
}

/// The command's init that the kernel says has sent this: it is a child of the session's.
pub(crate) fn init_of(session_init: Process, sender: Option<Pid>) -> Option<Process> {
    sender.and_then(|process| Process::child_of(session_init.pid, process))
}

fn told(source: io::Error) -> ShellError {
    match source.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ShellError::SessionEnded,
        _ => ShellError::channel(source),
    }
}
