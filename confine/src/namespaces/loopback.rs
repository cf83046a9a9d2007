//! Creates a loopback device in a network namespace, and the only listener on it.
//!
//! The namespace has no other device, so a connection in it can only reach this listener. A process outside
//! the namespace accepts the connections, so the namespace itself needs no server.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::OwnedFd,
};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, listen as accept_from, recv, send,
    socket_with,
};

/// Brings the loopback device up, and listens on 127.0.0.1. The calling process must be in its own network namespace,
/// with `CAP_NET_ADMIN` there.
pub(super) fn listen(port: u16) -> io::Result<OwnedFd> {
    bring_up()?;
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    accept_from(&listener, BACKLOG)?;
    Ok(listener)
}

/// Sets the device's flag `IFF_UP` through rtnetlink(7). The kernel then gives the device its addresses.
fn bring_up() -> io::Result<()> {
    // The default protocol, 0, is `NETLINK_ROUTE`.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // The request is a `struct nlmsghdr`, then a `struct ifinfomsg`. A message without an address goes to the kernel.
    let mut request = Vec::with_capacity(REQUEST_BYTES);
    request.extend_from_slice(&u32::try_from(REQUEST_BYTES).map_err(io::Error::other)?.to_ne_bytes());
    request.extend_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_ACK).map_err(io::Error::other)?;
    request.extend_from_slice(&flags.to_ne_bytes());
    // Sequence number and port are 0: there is only one request, and the kernel knows its sender.
    request.extend_from_slice(&[0; 8]);
    // Address family and device type are 0: any.
    request.extend_from_slice(&[0; 4]);
    request.extend_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    for flag in [libc::IFF_UP, libc::IFF_UP] {
        // The flags, and the mask of the flags that change.
        request.extend_from_slice(&flag.to_ne_bytes());
    }
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES];
    let (_, received) = recv(&socket, &mut answer, RecvFlags::empty())?;
    // The answer is a `struct nlmsghdr`, then the error as a negative number, or 0 for no error.
    let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(16..20).and_then(|error| error.try_into().ok()).map(i32::from_ne_bytes);
    match (received.min(ANSWER_BYTES) >= 20, kind.map(libc::c_int::from), error) {
        (true, Some(libc::NLMSG_ERROR), Some(0)) => Ok(()),
        (true, Some(libc::NLMSG_ERROR), Some(error)) => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::Error::other("unexpected reply of the kernel (rtnetlink)")),
    }
}

const REQUEST_BYTES: usize = 32;
const ANSWER_BYTES: usize = 64;

/// The loopback device is the first device of each network namespace.
const LOOPBACK_INDEX: i32 = 1;

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 64;
