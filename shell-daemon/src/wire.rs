//! What the daemon and a session say to each other, and how: one message, one packet, with descriptors.
//!
//! Both ends are ours. A shell never holds one of these sockets: all are closed when it is started.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use portcullis_confine::{PathAccess, ProcessLimits, ProcessPosture, ProcessUser};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::limits::{MESSAGE_BYTES, MESSAGE_HANDLES};

/// What the daemon says to a session. The first message is [`ToSession::Setup`], all others are shells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToSession {
    /// What the session is to confine itself to. Descriptors: the state folder of the canary, then one for
    /// each access.
    Setup(Setup),
    /// A shell for the next command. Descriptors: a memory file that will hold the command's text, standard
    /// input, output and error, where to report, and a pipe by which a line comes when the command begins.
    Prepare,
}

/// What a session confines itself to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) accesses: Vec<PathAccess>,
    pub(crate) limits: ProcessLimits,
    pub(crate) user: Option<ProcessUser>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) home: PathBuf,
}

/// What a session answers to its setup.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromSession {
    /// It is confined, and saw it.
    Ready { process: i32, posture: ProcessPosture },
    /// It is not, and ends.
    Refused { reason: String },
}

/// What a command's init reports. The end of its socket is the end of the last process of the command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromCommand {
    /// All that the command starts will be below this process.
    Started { process: i32 },
    /// There will be no shell.
    Failed { reason: String },
    /// The shell has ended.
    Ended(ShellEnd),
}

/// How a command's shell ended, and what it used.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ShellEnd {
    pub(crate) ending: Ending,
    pub(crate) cpu: Duration,
    pub(crate) peak_memory_bytes: u64,
    pub(crate) state: StateAfter,
    pub(crate) jobs_left: bool,
}

/// How a shell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// What the next command begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateAfter {
    /// What this command left.
    Saved,
    /// What the last one before it left: this shell was killed.
    KeptAfterKill,
    /// What the last one before it left: this one's state is larger than 1 MiB.
    KeptTooLarge,
    /// What the last one before it left: this shell was replaced by `exec`, or its `EXIT` trap was.
    KeptNotWritten,
}

/// A connected pair. Neither end outlives the start of another program.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    handles: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MESSAGE_BYTES || handles.len() > MESSAGE_HANDLES {
        return Err(io::Error::other("the message is larger than a session takes"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_HANDLES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !handles.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(handles)) {
        return Err(io::Error::other("the message has more descriptors than a session takes"));
    }
    let sent = rustix::io::retry_on_intr(|| {
        // A peer that is gone is an error, not a signal.
        rustix::net::sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    if sent == text.len() { Ok(()) } else { Err(io::Error::other("the message was cut")) }
}

/// The next message, or `None` when the peer is gone.
pub(crate) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    // Room for this message and not for the largest: a process that has just been doubled would pay for it.
    let peeked = rustix::io::retry_on_intr(|| {
        rustix::net::recv(socket, &mut [0; 0], RecvFlags::PEEK | RecvFlags::TRUNC)
    });
    let mut text = vec![0; peeked.map_or(0, |(_, length)| length).min(MESSAGE_BYTES)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_HANDLES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut text)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    });
    let received = match received {
        Ok(received) => received,
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let mut handles = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            handles.extend(rights);
        }
    }
    // No message of ours is empty.
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::other("the message was cut"));
    }
    Ok(Some((serde_json::from_slice(&text[..received.bytes])?, handles)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_message_brings_its_descriptors_and_closes_them_before_programs() {
        let (ours, theirs) = pair().unwrap();
        send(ours.as_fd(), &ToSession::Prepare, &[ours.as_fd(), theirs.as_fd()]).unwrap();
        let (message, handles) = receive::<ToSession>(theirs.as_fd()).unwrap().unwrap();
        assert!(matches!(message, ToSession::Prepare));
        assert_eq!(handles.len(), 2);
        for handle in handles {
            assert!(rustix::io::fcntl_getfd(&handle).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn garbage_is_an_error_and_an_end_is_none() {
        let (ours, theirs) = pair().unwrap();
        for garbage in [&b"{"[..], b"\"Walk\"", b"{\"Setup\":{}}", &[0xff; 100], b"\"Prepare\" \"Prepare\""] {
            rustix::io::write(&ours, garbage).unwrap();
            assert!(receive::<ToSession>(theirs.as_fd()).is_err(), "{garbage:?}");
        }
        rustix::io::write(&ours, &vec![b' '; MESSAGE_BYTES + 1]).unwrap();
        assert!(receive::<ToSession>(theirs.as_fd()).is_err(), "cut");
        drop(ours);
        assert!(receive::<ToSession>(theirs.as_fd()).unwrap().is_none());
    }

    #[test]
    fn what_is_too_large_is_not_sent() {
        let (ours, theirs) = pair().unwrap();
        let refused = FromSession::Refused { reason: "x".repeat(MESSAGE_BYTES) };
        assert!(send(ours.as_fd(), &refused, &[]).is_err());
        assert!(send(ours.as_fd(), &ToSession::Prepare, &[theirs.as_fd(); MESSAGE_HANDLES + 1]).is_err());
        drop(theirs);
        let gone = send(ours.as_fd(), &ToSession::Prepare, &[]).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }
}
