//! The attempts of a thread that may only connect: the port that Landlock must refuse, and each way around
//! Landlock's port rules.
//!
//! The attempts send nothing beyond this machine: they reach only a loopback port that this module opens.

use std::{
    collections::BTreeSet,
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, SendFlags, SocketFlags, SocketType, bind, connect, ipproto, listen, sendto,
        socket_with,
    },
};

use crate::{ConfineError, Layer, SyscallOutcome};

/// An attempt on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkProbe {
    /// Connect to this port, which no rule grants.
    OtherPort(u16),
    /// Connect to this port in the first `sendto`, which Landlock does not see.
    FastOpen(u16),
    Netlink,
    Mptcp,
    Udp,
    Bind,
    Listen,
}

impl NetworkProbe {
    /// Returns the attempts that the filter must refuse.
    pub(super) const fn filter_probes(port: u16) -> [Self; 6] {
        [Self::Netlink, Self::Mptcp, Self::Udp, Self::FastOpen(port), Self::Bind, Self::Listen]
    }

    pub(super) fn layer(self) -> Layer {
        match self {
            Self::OtherPort(_) => Layer::Landlock,
            Self::FastOpen(_) | Self::Netlink | Self::Mptcp | Self::Udp | Self::Bind | Self::Listen => {
                Layer::Seccomp
            }
        }
    }

    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::OtherPort(_) => "connect to a port that is not named",
            Self::FastOpen(_) => "connect by a first message (MSG_FASTOPEN)",
            Self::Netlink => "make a netlink socket",
            Self::Mptcp => "make an MPTCP socket",
            Self::Udp => "make a UDP socket",
            Self::Bind => "bind a socket to a port",
            Self::Listen => "listen on a socket",
        }
    }

    pub(super) fn refusal(self) -> libc::c_int {
        match self.layer() {
            Layer::Landlock => libc::EACCES,
            _ => libc::EPERM,
        }
    }

    /// Returns whether `outcome`, seen before the layer was applied, makes a later refusal meaningful. A
    /// kernel may lack MPTCP or have fast open disabled, so any answer other than the filter's is meaningful.
    pub(super) fn is_valid_control(self, outcome: SyscallOutcome) -> bool {
        match self {
            // An outer container's filter may refuse these calls as this crate's does. They then prove
            // nothing, and the other attempts must.
            Self::Netlink | Self::Mptcp | Self::FastOpen(_) => true,
            Self::Udp => outcome == SyscallOutcome::Succeeded,
            Self::OtherPort(_) | Self::Bind | Self::Listen => {
                outcome != SyscallOutcome::Failed(self.refusal())
            }
        }
    }

    /// Makes the attempt. `folder` is a handle that is not a socket: the kernel answers `bind` and `listen` on it with
    /// its own error, so neither attempt opens a port.
    pub(super) fn attempt(self, folder: impl AsFd) -> rustix::io::Result<()> {
        match self {
            Self::OtherPort(port) => connect(stream(None)?, &loopback(port)),
            Self::FastOpen(port) => {
                sendto(stream(None)?, b"", FAST_OPEN | SendFlags::NOSIGNAL, &loopback(port)).map(drop)
            }
            // Without a protocol the kernel uses protocol 0, `NETLINK_ROUTE`.
            Self::Netlink => {
                socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).map(drop)
            }
            Self::Mptcp => stream(Some(ipproto::MPTCP)).map(drop),
            Self::Udp => {
                socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).map(drop)
            }
            Self::Bind => bind(folder, &loopback(0)),
            Self::Listen => listen(folder, 1),
        }
    }
}

/// A listening port that no rule grants. It stays open while the attempts last.
#[derive(Debug)]
pub(crate) struct OtherPort {
    /// Collects connections in its backlog and accepts none.
    _listener: TcpListener,
    pub(crate) port: u16,
}

impl OtherPort {
    pub(crate) fn open(excluded_ports: &BTreeSet<u16>) -> Result<Self, ConfineError> {
        let failed = |source: io::Error| ConfineError::CanaryPort { source };
        // A listener on a granted port stays open until the loop ends, so that the kernel does not choose its
        // port again.
        let mut held_listeners = Vec::new();
        loop {
            let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
            let port = listener.local_addr().as_ref().map(SocketAddr::port).unwrap_or_default();
            if !excluded_ports.contains(&port) {
                return Ok(Self { _listener: listener, port });
            }
            held_listeners.push(listener);
        }
    }
}

fn stream(protocol: Option<Protocol>) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)
}

fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// The flag of tcp(7) with which `sendto` connects to its address and sends the data in the first packet.
const FAST_OPEN: SendFlags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN.cast_unsigned());
