//! The messages between the daemon and a session: one message is one packet, with descriptors.
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
    GroupProof, Layer, LayerStatus, PathAccess, ProcessLimits, ProcessPosture, ProcessUser, SeparateUser,
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

/// A message of the daemon to a session. The first is [`ToSession::Setup`], all others ask for shells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToSession {
    /// How the session confines itself. Descriptors: the state folder of the canary, then one for each path,
    /// then a memory file of certificates for a session with a network, then that of the control group if there is one.
    Setup(Box<SessionSetup>),
    /// Start a shell for the next command. Descriptors: a memory file for the command's text, standard input,
    /// output and error, the report socket, a pipe that gets a line when the command begins, and a memory
    /// file for the state that the command leaves.
    Prepare,
}

/// The setup of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionSetup {
    /// The mounts first, then the system's folders and devices.
    pub(crate) paths: Vec<SetupPath>,
    /// The names of the mounts.
    pub(crate) mounts: Vec<String>,
    /// The index of the mount that is `HOME`.
    pub(crate) home: usize,
    pub(crate) limits: ProcessLimits,
    pub(crate) user: Option<ProcessUser>,
    /// The session's control group, or the reason why it has none. A group comes with a further descriptor,
    /// the last one.
    pub(crate) group: Result<GroupProof, LayerStatus>,
    /// The separate user of a session with its own file tree.
    pub(crate) apart: Option<SeparateUser>,
    /// Variables besides those that every session has.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) plan: LayerPlan,
    /// Paths to make read-only, as the session's own file tree names them. Unused without such a tree.
    pub(crate) protected: Vec<PathBuf>,
    /// Folders that must stay where they are, likewise.
    pub(crate) fixed: Vec<PathBuf>,
    /// Whether a session of the posture `strong` gets a network.
    pub(crate) network: bool,
}

/// A path that a session may reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SetupPath {
    /// Its real path.
    pub(crate) path: PathBuf,
    /// Its path in the session's own file tree.
    pub(crate) place: PathBuf,
    pub(crate) access: PathAccess,
}

/// The layers by which a session confines itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LayerPlan {
    /// No layer.
    Nothing,
    /// All layers that work here.
    Layers {
        /// Except these.
        waived: Vec<Layer>,
        /// Set if namespaces are not to be tried: the reason to report.
        without_namespaces: Option<LayerStatus>,
    },
}

/// The session's answer to its setup. The kernel tells which process sent it, see [`receive_from`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromSession {
    /// The session is confined and has proved it. Descriptor: the listener of a session with a network.
    Ready(SessionReady),
    /// The session could not confine itself, and ends.
    Refused {
        reason: String,
        /// Namespaces were the cause; a session without them may work.
        by_namespaces: bool,
    },
}

/// A session that is confined.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionReady {
    pub(crate) posture: ProcessPosture,
    /// Whether it has its own file tree, with the mounts at `/NAME`.
    pub(crate) has_tree: bool,
    /// How many of the protected paths became read-only.
    pub(crate) protected: usize,
    /// The owner of its processes, where that is another user than the daemon's.
    pub(crate) user: Option<ProcessUser>,
    /// Whether it has the network that it was to get, or the reason why not; `None` if it was to get none.
    pub(crate) network: Option<Result<(), String>>,
}

/// A report of a command's init. Its socket ends with the last process of the command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromCommand {
    /// The sender is the command's init: all processes of the command will be below it.
    Started,
    /// The shell could not be started.
    Failed { reason: String },
    /// The shell has ended.
    Ended(ShellEnd),
}

/// The end of a command's shell, and its resource usage.
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

/// The state that the next command begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateAfter {
    /// The state that this command left.
    Saved,
    /// The previous state: this shell was killed.
    KeptAfterKill,
    /// The previous state: the state of this command is larger than 1 MiB.
    KeptTooLarge,
    /// The previous state: `exec` replaced this shell, or its `EXIT` trap was replaced.
    KeptNotWritten,
}

/// A connected pair of sockets, the daemon's end first. On the daemon's end the kernel adds the sender of
/// each message. Both ends are closed on `exec`.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (daemon_end, session_end) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_passcred(&daemon_end, true)?;
    Ok((daemon_end, session_end))
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
        // `NOSIGNAL`: a peer that is gone is an error here, not a `SIGPIPE`.
        rustix::net::sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    if sent == text.len() { Ok(()) } else { Err(io::Error::other("the message was cut")) }
}

/// Receives the next message, or `None` when the peer is gone.
pub(crate) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    Ok(receive_from(socket)?.map(|received| (received.message, received.handles)))
}

/// A message on the daemon's end.
#[derive(Debug)]
pub(crate) struct ReceivedMessage<T> {
    pub(crate) message: T,
    pub(crate) handles: Vec<OwnedFd>,
    /// The sender's process number in the receiver's process namespace; in its own namespace it has another
    /// one. Known on the daemon's end only.
    pub(crate) sender: Option<Pid>,
}

/// Like [`receive`], with the sender.
pub(crate) fn receive_from<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<ReceivedMessage<T>>> {
    // Allocate for this message, not for the largest one: a process that has just been forked would pay for
    // each page.
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
        // The kernel reports a peer that died with unread messages like this.
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
    // An empty read is the end of the stream: no message of ours is empty.
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::other("the message was cut"));
    }
    let message = serde_json::from_slice(&text[..received.bytes])?;
    Ok(Some(ReceivedMessage { message, handles, sender }))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_message_brings_its_descriptors_closed_on_exec() {
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
    fn oversized_message_is_not_sent() {
        let (ours, theirs) = pair().unwrap();
        let refused = FromSession::Refused { reason: "x".repeat(MESSAGE_BYTES), by_namespaces: false };
        assert!(send(ours.as_fd(), &refused, &[]).is_err());
        assert!(send(ours.as_fd(), &ToSession::Prepare, &[theirs.as_fd(); MESSAGE_HANDLES + 1]).is_err());
        drop(theirs);
        let gone = send(ours.as_fd(), &ToSession::Prepare, &[]).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }
}
