//! A shell that waits for its command. It is started after the end of the last command, while the session is idle.
//!
//! Starting bash and loading the last state takes longer than most commands. The shell therefore gets everything that
//! it needs, including standard streams, before the command arrives. The command then brings only its text, in a memory
//! file that both sides hold, and a line in a pipe.

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
    limits::{MAX_COMMAND_BYTES, MAX_SNAPSHOT_BYTES, PIPE_BYTES},
    tree::Process,
    wire::{self, FromCommand, ToSession},
};

/// The descriptors for a shell: the sidecar's ends and the shell's.
#[derive(Debug)]
pub(crate) struct ShellStreams {
    sidecar_ends: SidecarEnds,
    shell_ends: [OwnedFd; 7],
}

/// The sidecar's ends.
#[derive(Debug)]
pub(crate) struct SidecarEnds {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) report: OwnedFd,
    /// The memory file with the command's text. Its file offset is shared with the shell.
    pub(crate) text: OwnedFd,
    start_signal: OwnedFd,
}

/// A shell that the session was asked to start.
#[derive(Debug)]
pub(crate) struct PreparedShell {
    pub(crate) ends: SidecarEnds,
    /// The command's init, once it has reported itself.
    pub(crate) init: Option<Process>,
}

impl ShellStreams {
    pub(crate) fn new(user: Option<ProcessUser>) -> Result<Self, ShellError> {
        Self::open(user).map_err(ShellError::channel)
    }

    fn open(user: Option<ProcessUser>) -> io::Result<Self> {
        let (report, shell_report) = wire::socket_pair()?;
        let (shell_stdin, stdin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, shell_stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, shell_stderr) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (shell_start_signal, start_signal) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        for sidecar_ends in [&stdin, &stdout, &stderr] {
            // Only the sidecar's ends are non-blocking: each end of a pipe has its own flags.
            rustix::fs::fcntl_setfl(sidecar_ends, OFlags::NONBLOCK)?;
        }
        if let Some(user) = user {
            // Programs open `/dev/stdout` by its name, and the kernel then checks the pipe's owner.
            for shell_ends in [&shell_stdin, &shell_stdout, &shell_stderr] {
                let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
                rustix::fs::fchown(shell_ends, Some(uid), Some(gid))?;
            }
        }
        // A larger pipe gives more bytes per read. Ignore a failure: if the user's share of pipe memory is used up,
        // the usual size stays. A session has at most two such pairs. Errors are usually few, so their pipe is smaller.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);
        let _ = rustix::pipe::fcntl_setpipe_size(&stderr, PIPE_BYTES / 4);
        // The text is in a memory file, because arguments are limited to 128 KiB and visible to other processes.
        let text = memory_file("command", TEXT_BYTES)?;
        let shell_text = text.try_clone()?;
        // Make the file for the state here, because no process of a session may make a memory file.
        let state = memory_file("state", MAX_SNAPSHOT_BYTES)?;
        Ok(Self {
            sidecar_ends: SidecarEnds { stdin, stdout, stderr, report, text, start_signal },
            shell_ends: [
                shell_text,
                shell_stdin,
                shell_stdout,
                shell_stderr,
                shell_report,
                shell_start_signal,
                state,
            ],
        })
    }

    /// Asks a session for the shell. The last command must have ended, because the shell starts with the state that the
    /// command left.
    pub(crate) fn send(self, control: BorrowedFd<'_>) -> Result<PreparedShell, ShellError> {
        let handles: Vec<BorrowedFd<'_>> = self.shell_ends.iter().map(|handle| handle.as_fd()).collect();
        wire::send(control, &ToSession::Prepare, &handles).map_err(send_error)?;
        Ok(PreparedShell { ends: self.sidecar_ends, init: None })
    }
}

impl PreparedShell {
    /// Whether the shell runs or will run. If it was killed while it waited, or could not be started, it has run
    /// nothing, so another shell can replace it.
    pub(crate) fn is_usable(&mut self, session_init: Process) -> bool {
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            match poll(&mut [PollFd::new(&self.ends.report, PollFlags::IN)], Some(&no_wait)) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
            let Ok(Some(received)) = wire::receive_from(self.ends.report.as_fd()) else { return false };
            match received.message {
                FromCommand::Started => self.init = command_init(session_init, received.sender),
                FromCommand::Failed { .. } | FromCommand::Ended(_) => return false,
            }
        }
    }

    /// Lets the command begin, in `workdir` unless that is empty. Neither text may hold a NUL.
    pub(crate) fn begin(&self, workdir: &str, command: &str) -> Result<(), ShellError> {
        let text = format!("{workdir}\0{command}\0");
        let mut written = 0;
        while written < text.len() {
            // `pwrite` does not move the file offset, which is shared with the shell: the shell reads from the start.
            let remaining = &text.as_bytes()[written..];
            written += rustix::io::pwrite(&self.ends.text, remaining, written as u64)
                .map_err(ShellError::channel)?;
        }
        match rustix::io::write(&self.ends.start_signal, b"\n") {
            // A shell that is gone reports that itself.
            Ok(_) | Err(rustix::io::Errno::PIPE) => Ok(()),
            Err(errno) => Err(ShellError::channel(errno)),
        }
    }
}

/// Makes a memory file of zeros with a fixed size. The size is sealed, because sessions write to the file.
pub(crate) fn memory_file(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// Room for a folder and a command, each with a NUL after it.
const TEXT_BYTES: u64 = 2 * (MAX_COMMAND_BYTES as u64 + 1);

/// Whether the shell has not begun to read the command's text.
pub(crate) fn is_unread(text: &OwnedFd) -> bool {
    rustix::fs::tell(text).is_ok_and(|position| position == 0)
}

/// Returns the command's init: the sender that the kernel names, if it is a child of the session's init.
pub(crate) fn command_init(session_init: Process, sender: Option<Pid>) -> Option<Process> {
    sender.and_then(|process| Process::child_of(session_init.pid, process))
}

fn send_error(source: io::Error) -> ShellError {
    match source.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ShellError::SessionEnded,
        _ => ShellError::channel(source),
    }
}
