//! The messages between the sidecar and a session. Each message is one packet, with descriptors.
//!
//! Both ends run this program's code. A shell never holds one of these sockets: all are closed at the shell's `exec`.

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
use thiserror::Error;

use crate::limits::{MAX_MESSAGE_BYTES, MAX_MESSAGE_HANDLES};

/// A message from the sidecar to a session. The first message is [`ToSession::Setup`]. All others request
/// shells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToSession {
    /// The setup with which the session confines itself. Descriptors, in this order: the state folder of the
    /// canary, one for each path, a memory file of certificates for a session with a network, and the control
    /// group if there is one.
    Setup(Box<SessionSetup>),
    /// Start a shell for the next command. Descriptors: a memory file for the command's text, standard input, output
    /// and error, the report socket, a pipe that gets a line when the command starts, and a memory file for the state
    /// that the command leaves.
    Prepare,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionSetup {
    /// The mounts first, then the system's folders and devices, then the operator's toolchain. Last, two
    /// paths for each cache: the copy for a session with its own file tree, and the cache itself for any
    /// other session.
    pub(crate) paths: Vec<SetupPath>,
    /// The number of the toolchain's paths.
    pub(crate) toolchain: usize,
    /// The number of caches that have copies.
    pub(crate) caches: usize,
    /// The names of the mounts.
    pub(crate) mounts: Vec<String>,
    /// The index of the mount that is `HOME`.
    pub(crate) home: usize,
    pub(crate) limits: ProcessLimits,
    pub(crate) user: Option<ProcessUser>,
    /// The session's control group, or the reason why it has none. The last descriptor of the message belongs to the
    /// group.
    pub(crate) group: Result<GroupProof, LayerStatus>,
    /// The separate user of a session with its own file tree.
    pub(crate) separate_user: Option<SeparateUser>,
    /// Folders that are searched for programs before the system's.
    pub(crate) search_path: Vec<PathBuf>,
    /// Variables in addition to those that every session has.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) plan: LayerPlan,
    /// Paths to make read-only, as the session's own file tree names them. Unused without such a tree.
    pub(crate) protected: Vec<PathBuf>,
    /// Paths to cover, as the session's own file tree names them. Unused without such a tree.
    pub(crate) hidden: Vec<PathBuf>,
    /// Folders that must stay in place, as the session's own file tree names them. Unused without such a tree.
    pub(crate) fixed: Vec<PathBuf>,
    /// Whether a session of the posture `strong` gets a network.
    pub(crate) network: bool,
    /// Whether changes of files wait for the sidecar.
    pub(crate) watch_changes: bool,
}

/// A path that a session may reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SetupPath {
    /// The real path.
    pub(crate) path: PathBuf,
    /// The path in the session's own file tree.
    pub(crate) target: PathBuf,
    pub(crate) access: PathAccess,
}

/// The layers that a session applies to itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LayerPlan {
    /// No layer.
    Nothing,
    /// All layers that work on this machine.
    Layers {
        /// The layers to leave out.
        waived: Vec<Layer>,
        /// The status to report for namespaces. Set if they must not be tried.
        without_namespaces: Option<LayerStatus>,
    },
}

impl LayerPlan {
    /// Whether a session of this plan tries to get its own file tree.
    pub(crate) fn may_have_tree(&self) -> bool {
        matches!(self, Self::Layers { without_namespaces: None, .. })
    }
}

/// The session's answer to its setup. The kernel reports which process sent it, see [`receive_from`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromSession {
    /// The session is confined and has proved its confinement. Descriptors: the listener of a session with a network,
    /// and the listener for changes if the sidecar watches them.
    Ready(SessionReady),
    /// The session could not confine itself, and ends.
    Refused {
        reason: String,
        /// Whether namespaces were the cause. A session without them may work.
        by_namespaces: bool,
    },
}

/// The reason why a session has no network, as text: it crosses from the session's process to the sidecar.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NetworkAbsence(String);

impl NetworkAbsence {
    pub(crate) fn new(reason: &impl ToString) -> Self {
        Self(reason.to_string())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A session that is confined.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionReady {
    pub(crate) posture: ProcessPosture,
    /// Whether the session has its own file tree, with the mounts at `/NAME`.
    pub(crate) has_tree: bool,
    /// The number of protected paths that became read-only.
    pub(crate) protected: usize,
    /// The owner of the session's processes, if that is not the sidecar's user.
    pub(crate) user: Option<ProcessUser>,
    /// Whether the session has the network of its setup, or the reason why not. `None` if the setup has no network.
    pub(crate) network: Option<Result<(), NetworkAbsence>>,
    /// Whether changes of files wait for the sidecar.
    pub(crate) watches_changes: bool,
}

/// A report of a command's init. The report socket is closed when the last process of the command has ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromCommand {
    /// The sender is the command's init: all processes of the command will be below it.
    Started,
    /// The shell could not be started.
    Failed { reason: String },
    /// The shell has ended.
    Ended(ShellExit),
}

/// The end of a command's shell, and its resource usage.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ShellExit {
    pub(crate) ending: Ending,
    pub(crate) cpu: Duration,
    pub(crate) peak_memory_bytes: u64,
    pub(crate) state: StateOutcome,
    pub(crate) jobs_left: bool,
}

/// How a shell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// The shell exited with this code.
    Code(i32),
    /// This signal ended the shell.
    Signal(i32),
}

portcullis_types::word_enum! {
    /// The shell state that the next command starts with: this command's state, or the previous one and the reason.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum StateOutcome {
        /// The state that this command left.
        Carried = "carried",
        /// The previous state: this shell was killed.
        Killed = "killed",
        /// The previous state: the state of this command is larger than 1 MiB.
        TooLarge = "too_large",
        /// The previous state: `exec` replaced this shell, or its `EXIT` trap was replaced.
        NotWritten = "not_written",
    }
}

/// Makes a connected pair of sockets, the sidecar's end first. On the sidecar's end, the kernel adds the sender
/// to each message. Both ends are closed on `exec`.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (sidecar_end, session_end) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_passcred(&sidecar_end, true)?;
    Ok((sidecar_end, session_end))
}

/// A message that is not sent or was not received whole. [`send`] and [`receive`] return it as the cause of an
/// [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum MessageError {
    #[error("the message is larger than a session accepts: {MAX_MESSAGE_BYTES} bytes")]
    TooLarge,
    #[error("the message has more descriptors than a session accepts: {MAX_MESSAGE_HANDLES}")]
    TooManyHandles,
    #[error("the message was truncated")]
    Truncated,
}

impl From<MessageError> for io::Error {
    fn from(error: MessageError) -> Self {
        Self::other(error)
    }
}

pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    handles: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MAX_MESSAGE_BYTES {
        return Err(MessageError::TooLarge.into());
    }
    if handles.len() > MAX_MESSAGE_HANDLES {
        return Err(MessageError::TooManyHandles.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MESSAGE_HANDLES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !handles.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(handles)) {
        return Err(MessageError::TooManyHandles.into());
    }
    let sent = rustix::io::retry_on_intr(|| {
        // `NOSIGNAL`: a peer that is gone is an error here, not a `SIGPIPE`.
        rustix::net::sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    if sent == text.len() { Ok(()) } else { Err(MessageError::Truncated.into()) }
}

/// Receives the next message, or `None` when the peer is gone.
pub(crate) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    Ok(receive_from(socket)?.map(|received| (received.message, received.handles)))
}

/// A message on the sidecar's end.
#[derive(Debug)]
pub(crate) struct ReceivedMessage<T> {
    pub(crate) message: T,
    pub(crate) handles: Vec<OwnedFd>,
    /// The sender's process number in the receiver's process namespace. The number in the sender's own namespace may be
    /// different. Known on the sidecar's end only.
    pub(crate) sender: Option<Pid>,
}

/// Receives the next message with its sender, or `None` when the peer is gone.
pub(crate) fn receive_from<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<ReceivedMessage<T>>> {
    // Allocate for this message instead of the largest possible: each page costs time in a process that has just been
    // forked.
    let peeked = rustix::io::retry_on_intr(|| {
        rustix::net::recv(socket, &mut [0; 0], RecvFlags::PEEK | RecvFlags::TRUNC)
    });
    let mut text = vec![0; peeked.map_or(0, |(_, length)| length).min(MAX_MESSAGE_BYTES)];
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MESSAGE_HANDLES), ScmCredentials(1))];
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
        // The kernel reports this if the peer died with unread messages.
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let mut handles = Vec::new();
    let mut sender = None;
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(rights) => handles.extend(rights),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.pid),
            // The sockets enable no other control messages.
            _ => {}
        }
    }
    // An empty read is the end of the stream: no message of this protocol is empty.
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(MessageError::Truncated.into());
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
        let (sidecar_end, session_end) = socket_pair().unwrap();
        send(sidecar_end.as_fd(), &ToSession::Prepare, &[sidecar_end.as_fd(), session_end.as_fd()]).unwrap();
        let (message, handles) = receive::<ToSession>(session_end.as_fd()).unwrap().unwrap();
        assert!(matches!(message, ToSession::Prepare));
        assert_eq!(handles.len(), 2);
        for handle in handles {
            assert!(rustix::io::fcntl_getfd(&handle).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn garbage_is_an_error_and_an_end_is_not() {
        let (sidecar_end, session_end) = socket_pair().unwrap();
        for garbage in [&b"{"[..], b"\"Walk\"", b"{\"Setup\":{}}", &[0xff; 100], b"\"Prepare\" \"Prepare\""] {
            rustix::io::write(&sidecar_end, garbage).unwrap();
            assert!(receive::<ToSession>(session_end.as_fd()).is_err(), "{garbage:?}");
        }
        rustix::io::write(&sidecar_end, &vec![b' '; MAX_MESSAGE_BYTES + 1]).unwrap();
        assert!(receive::<ToSession>(session_end.as_fd()).is_err(), "cut");
        drop(sidecar_end);
        assert!(receive::<ToSession>(session_end.as_fd()).unwrap().is_none());
    }

    #[test]
    fn oversized_message_is_not_sent() {
        let (sidecar_end, session_end) = socket_pair().unwrap();
        let refused = FromSession::Refused { reason: "x".repeat(MAX_MESSAGE_BYTES), by_namespaces: false };
        assert!(send(sidecar_end.as_fd(), &refused, &[]).is_err());
        assert!(
            send(sidecar_end.as_fd(), &ToSession::Prepare, &[session_end.as_fd(); MAX_MESSAGE_HANDLES + 1])
                .is_err()
        );
        drop(session_end);
        let gone = send(sidecar_end.as_fd(), &ToSession::Prepare, &[]).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }
}
