//! The attempts of a thread that may only connect: each way round the ports that Landlock alone leaves open, and
//! the port that Landlock itself must refuse.
//!
//! They reach nothing but a port of the loopback device that this file opens.

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

/// One attempt on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkProbe {
    /// Connect to this port, which no rule names.
    OtherPort(u16),
    /// Connect to it by the first `sendto`, which Landlock does not see.
    FastOpen(u16),
    Netlink,
    Mptcp,
    Udp,
    Bind,
    Listen,
}

impl NetworkProbe {
    /// The attempts that the filter must refuse.
    pub(super) const fn of_filter(port: u16) -> [Self; 6] {
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

    /// Whether `outcome` makes a later refusal meaningful. Kernels are built without MPTCP, and turn fast open
    /// off: any answer but the filter's own will do.
    pub(super) fn is_free(self, outcome: SyscallOutcome) -> bool {
        match self {
            // The filter of a container around us may refuse these, as ours does. They prove nothing then, and
            // the others have to.
            Self::Netlink | Self::Mptcp | Self::FastOpen(_) => true,
            Self::Udp => outcome == SyscallOutcome::Succeeded,
            Self::OtherPort(_) | Self::Bind | Self::Listen => {
                outcome != SyscallOutcome::Failed(self.refusal())
            }
        }
    }

    /// `folder` is a handle that is no socket: the kernel refuses to bind it or to listen on it, with an error
    /// of its own, and so neither attempt opens a port.
    pub(super) fn attempt(self, folder: impl AsFd) -> rustix::io::Result<()> {
        match self {
            Self::OtherPort(port) => connect(stream(None)?, &loopback(port)),
            Self::FastOpen(port) => {
                sendto(stream(None)?, b"", FAST_OPEN | SendFlags::NOSIGNAL, &loopback(port)).map(drop)
            }
            // Protocol 0 is that of routes (`NETLINK_ROUTE`).
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

/// A listening port that no rule names, for as long as the attempts last.
#[derive(Debug)]
pub(crate) struct OtherPort {
    /// Takes connections into its backlog. It is never read.
    _listener: TcpListener,
    pub(crate) port: u16,
}

impl OtherPort {
    pub(crate) fn open(named: &BTreeSet<u16>) -> Result<Self, ConfineError> {
        let failed = |source: io::Error| ConfineError::CanaryPort { source };
        // Listeners whose port is named stay open until the end, so that the kernel does not choose them again.
        let mut named_ones = Vec::new();
        loop {
            let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
            let port = listener.local_addr().as_ref().map(SocketAddr::port).unwrap_or_default();
            if !named.contains(&port) {
                return Ok(Self { _listener: listener, port });
            }
            named_ones.push(listener);
        }
    }
}

fn stream(protocol: Option<Protocol>) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)
}

fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// tcp(7), `TCP_FASTOPEN`: the address of `sendto` is connected to, and the data go with the first packet.
const FAST_OPEN: SendFlags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN.cast_unsigned());
