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

use portcullis_confine::{
    Apart, GroupProof, Layer, LayerStatus, PathAccess, ProcessLimits, ProcessPosture, ProcessUser,
};
use rustix::{
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    },
    process::Pid,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::limits::{MESSAGE_BYTES, MESSAGE_HANDLES};

/// What the daemon says to a session. The first message is [`ToSession::Setup`], all others are shells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToSession {
    /// What the session is to confine itself to. Descriptors: the state folder of the canary, then one for
    /// each access.
    Setup(Box<Setup>),
    /// A shell for the next command. Descriptors: a memory file that will hold the command's text, standard
    /// input, output and error, where to report, a pipe by which a line comes when the command begins, and a
    /// memory file for the state that it leaves.
    Prepare,
}

/// What a session is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The mounts first, then the system's folders and devices.
    pub(crate) paths: Vec<SetupPath>,
    /// The names of the mounts.
    pub(crate) mounts: Vec<String>,
    /// Which of the mounts is `HOME`.
    pub(crate) home: usize,
    pub(crate) limits: ProcessLimits,
    pub(crate) user: Option<ProcessUser>,
    /// The control group that it is in, or why there is none. With one comes a further descriptor, the last.
    pub(crate) group: Result<GroupProof, LayerStatus>,
    /// Another user, for a file tree of its own.
    pub(crate) apart: Option<Apart>,
    /// Variables besides those that every session has.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) plan: Plan,
    /// Paths that are to be read-only where there is a file tree to say so, as that tree has them.
    pub(crate) protected: Vec<PathBuf>,
    /// Folders that are to stay where they are, likewise.
    pub(crate) fixed: Vec<PathBuf>,
}

/// Something that a session may reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SetupPath {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Where it is in a file tree of the session's own.
    pub(crate) place: PathBuf,
    pub(crate) access: PathAccess,
}

/// What a session is to confine itself by.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Plan {
    /// By nothing.
    Nothing,
    /// By all that works here.
    Layers {
        /// But for these.
        waived: Vec<Layer>,
        /// Why it is not to try namespaces.
        without_namespaces: Option<LayerStatus>,
    },
}

/// What a session answers to its setup. Who it is says the kernel: see [`receive_from`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromSession {
    /// It is confined, and saw it.
    Ready(Ready),
    /// It is not, and ends.
    Refused {
        reason: String,
        /// It was the namespaces; without them there may be a session.
        by_namespaces: bool,
    },
}

/// A session that is confined.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) posture: ProcessPosture,
    /// It has a file tree of its own, in which the mounts are at their places.
    pub(crate) has_tree: bool,
    /// How many of the protected paths became read-only.
    pub(crate) protected: usize,
    /// Whom its processes belong to, if that is not whom the daemon belongs to.
    pub(crate) user: Option<ProcessUser>,
}

/// What a command's init reports. The end of its socket is the end of the last process of the command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromCommand {
    /// All that the command starts will be below the process that says so.
    Started,
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

/// A connected pair, the daemon's end first: there the kernel says who sent a message. Neither end outlives
/// the start of another program.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_passcred(&ours, true)?;
    Ok((ours, theirs))
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
    Ok(receive_from(socket)?.map(|received| (received.message, received.handles)))
}

/// A message on the daemon's end.
#[derive(Debug)]
pub(crate) struct Received<T> {
    pub(crate) message: T,
    pub(crate) handles: Vec<OwnedFd>,
    /// Who sent it, by the number that it has for whoever reads it: in a process namespace it has another one
    /// for itself. Only on the daemon's end.
    pub(crate) sender: Option<Pid>,
}

/// As [`receive`], and who it is from.
pub(crate) fn receive_from<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<Received<T>>> {
    // Room for this message and not for the largest: a process that has just been doubled would pay for it.
    let peeked = rustix::io::retry_on_intr(|| {
        rustix::net::recv(socket, &mut [0; 0], RecvFlags::PEEK | RecvFlags::TRUNC)
    });
    let mut text = vec![0; peeked.map_or(0, |(_, length)| length).min(MESSAGE_BYTES)];
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_HANDLES), ScmCredentials(1))];
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
    let mut sender = None;
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(rights) => handles.extend(rights),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.pid),
            _ => {}
        }
    }
    // No message of ours is empty.
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::other("the message was cut"));
    }
    let message = serde_json::from_slice(&text[..received.bytes])?;
    Ok(Some(Received { message, handles, sender }))
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
        let refused = FromSession::Refused { reason: "x".repeat(MESSAGE_BYTES), by_namespaces: false };
        assert!(send(ours.as_fd(), &refused, &[]).is_err());
        assert!(send(ours.as_fd(), &ToSession::Prepare, &[theirs.as_fd(); MESSAGE_HANDLES + 1]).is_err());
        drop(theirs);
        let gone = send(ours.as_fd(), &ToSession::Prepare, &[]).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }
}
