//! Sockets of a thread that may only connect, on the real kernel.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket},
    os::unix::net::UnixStream,
    thread,
};

use rustix::{
    fs::OFlags,
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, ipproto,
        sendmsg, sendto, socket, socket_with, sockopt,
    },
};

use crate::{
    CanaryFile, Layer, NetworkRules, Requirement, SyscallOutcome, ThreadConfinement,
    sys::{ProbeSyscall, TestCall, attempt},
    testing::{ConfineFixture, confined, kernel_has_layers, open},
};

/// A listener that answers each connection with one byte, in its own thread.
struct Server {
    port: u16,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for connection in listener.incoming() {
                // Ignored: a canary connects and leaves immediately.
                let _ignored = connection.and_then(|mut connection| connection.write_all(b"!"));
            }
        });
        Self { port }
    }
}

fn rules(canary: CanaryFile, ports: &[u16]) -> ThreadConfinement {
    ThreadConfinement {
        landlock: Requirement::Required,
        seccomp: Requirement::Required,
        mounts: Vec::new(),
        network: Some(NetworkRules { ports: ports.iter().copied().collect::<BTreeSet<u16>>() }),
        canary,
    }
}

fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

fn make(family: AddressFamily, kind: SocketType, protocol: Option<Protocol>) -> Result<(), Errno> {
    socket_with(family, kind, SocketFlags::CLOEXEC, protocol).map(drop)
}

#[test]
fn a_named_port_is_reached_and_no_other() {
    if !kernel_has_layers() {
        return;
    }
    let (fixture, allowed_server, other_server) = (ConfineFixture::new(), Server::start(), Server::start());
    confined(&rules(fixture.canary(), &[allowed_server.port]), |proven| {
        let mut connection = TcpStream::connect(loopback(allowed_server.port)).unwrap();
        connection.set_nodelay(true).unwrap();
        connection.write_all(b"?").unwrap();
        let mut answer = [0];
        connection.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"!");
        if proven.posture().landlock_abi() >= Some(4) {
            let refused = TcpStream::connect(loopback(other_server.port)).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
            let over_six = SocketAddrV6::new(Ipv6Addr::LOCALHOST, other_server.port, 0, 0);
            assert_eq!(TcpStream::connect(over_six).unwrap_err().raw_os_error(), Some(libc::EACCES));
        }
    });
}

#[test]
fn other_protocols_have_no_socket() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    confined(&rules(fixture.canary(), &[443]), |_| {
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            make(family, SocketType::STREAM, None).unwrap();
            make(family, SocketType::STREAM, Some(ipproto::TCP)).unwrap();
            for protocol in [ipproto::MPTCP, ipproto::SCTP, ipproto::UDP, ipproto::RAW] {
                assert_eq!(
                    make(family, SocketType::STREAM, Some(protocol)),
                    Err(Errno::PERM),
                    "{protocol:?}"
                );
            }
            for kind in [SocketType::DGRAM, SocketType::RAW, SocketType::SEQPACKET] {
                assert_eq!(make(family, kind, None), Err(Errno::PERM), "{kind:?}");
            }
        }
        for family in [
            AddressFamily::UNIX,
            AddressFamily::NETLINK,
            AddressFamily::PACKET,
            AddressFamily::VSOCK,
            AddressFamily::XDP,
        ] {
            for kind in [SocketType::STREAM, SocketType::DGRAM, SocketType::RAW] {
                assert_eq!(socket(family, kind, None).map(drop), Err(Errno::PERM), "{family:?} {kind:?}");
            }
        }
        assert_eq!(UnixStream::pair().unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert_eq!(UdpSocket::bind(loopback(0)).unwrap_err().raw_os_error(), Some(libc::EPERM));
    });
}

#[test]
fn a_message_cannot_connect() {
    if !kernel_has_layers() {
        return;
    }
    let (fixture, allowed_server) = (ConfineFixture::new(), Server::start());
    confined(&rules(fixture.canary(), &[allowed_server.port]), |_| {
        let socket = || socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        // An address in a message is refused even with a granted port, because no layer judges its port.
        let fast_open = SendFlags::from_bits_retain(libc::MSG_FASTOPEN.cast_unsigned());
        assert_eq!(sendto(socket(), b"?", fast_open, &loopback(allowed_server.port)), Err(Errno::PERM));
        assert_eq!(
            sendto(socket(), b"?", SendFlags::empty(), &loopback(allowed_server.port)),
            Err(Errno::PERM)
        );
        let connected = TcpStream::connect(loopback(allowed_server.port)).unwrap();
        let message = [std::io::IoSlice::new(b"?")];
        let sent = sendmsg(&connected, &message, &mut SendAncillaryBuffer::default(), SendFlags::empty());
        assert_eq!(sent, Err(Errno::PERM));
        rustix::net::send(&connected, b"?", SendFlags::NOSIGNAL).unwrap();
        let mut answer = [0; 1];
        assert_eq!(rustix::net::recv(&connected, &mut answer, RecvFlags::empty()).unwrap().0, 1);
    });
}

#[test]
fn a_connected_socket_keeps_its_protocol_and_its_peer() {
    if !kernel_has_layers() {
        return;
    }
    let (fixture, allowed_server) = (ConfineFixture::new(), Server::start());
    confined(&rules(fixture.canary(), &[allowed_server.port]), |_| {
        let connected = TcpStream::connect(loopback(allowed_server.port)).unwrap();
        assert_eq!(sockopt::set_socket_keepalive(&connected, true), Err(Errno::PERM));
        assert_eq!(sockopt::set_tcp_quickack(&connected, true), Err(Errno::PERM));
        assert_eq!(sockopt::set_ip_ttl(&connected, 1), Err(Errno::PERM));
        connected.set_nodelay(true).unwrap();
        assert!(connected.take_error().unwrap().is_none());
    });
}

#[test]
fn a_connecting_thread_neither_binds_nor_listens() {
    if !kernel_has_layers() {
        return;
    }
    let (fixture, listener) = (ConfineFixture::new(), TcpListener::bind(loopback(0)).unwrap());
    confined(&rules(fixture.canary(), &[443]), |_| {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert_eq!(rustix::net::bind(&socket, &loopback(0)), Err(Errno::PERM));
        assert_eq!(rustix::net::listen(&socket, 1), Err(Errno::PERM));
        assert_eq!(rustix::net::accept(&listener).map(drop), Err(Errno::PERM));
    });
}

#[test]
fn a_connecting_thread_opens_no_file() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let open_file = File::open(fixture.path("read/file")).unwrap();
    confined(&rules(fixture.canary(), &[443]), |_| {
        for path in ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/proc/self/exe", "/"] {
            assert_eq!(open(path, OFlags::RDONLY), Err(Errno::PERM), "{path}");
        }
        assert_eq!(open(fixture.path("write/file"), OFlags::WRONLY), Err(Errno::PERM));
        assert_eq!(rustix::fs::stat("/etc/passwd").map(drop), Err(Errno::PERM));
        // Like every thread, this one can use the open handles of its process.
        let mut byte = [0];
        (&open_file).read_exact(&mut byte).unwrap();
    });
}

#[test]
fn a_connecting_thread_starts_no_program_and_no_process() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    confined(&rules(fixture.canary(), &[443]), |_| {
        for call in TestCall::REFUSED {
            let refused = SyscallOutcome::Failed(libc::EPERM);
            assert_eq!(attempt(ProbeSyscall::Test(call)), refused, "{call:?}");
        }
        assert_eq!(attempt(ProbeSyscall::Execve), SyscallOutcome::Failed(libc::EPERM));
        assert_eq!(attempt(ProbeSyscall::Clone3), SyscallOutcome::Failed(libc::ENOSYS));
        assert!(thread::Builder::new().spawn(|| ()).is_err());
    });
}

/// The reason for each rule of the filter: Landlock alone allows these attempts.
#[test]
fn landlock_alone_leaves_the_ways_round_open() {
    if !kernel_has_layers() {
        return;
    }
    let (fixture, other_server) = (ConfineFixture::new(), Server::start());
    let landlock_only = ThreadConfinement { seccomp: Requirement::Waived, ..rules(fixture.canary(), &[443]) };
    confined(&landlock_only, |_| {
        let sender = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        sendto(&sender, b"?", SendFlags::empty(), &loopback(other_server.port)).unwrap();
        make(AddressFamily::NETLINK, SocketType::RAW, None).unwrap();
        assert_ne!(make(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP)), Err(Errno::PERM));
    });
    let seccomp_only = ThreadConfinement { landlock: Requirement::Waived, ..rules(fixture.canary(), &[443]) };
    confined(&seccomp_only, |proven| {
        TcpStream::connect(loopback(other_server.port)).unwrap();
        assert_eq!(proven.posture().summary(), "landlock=waived,seccomp=enforced");
        assert!(proven.posture().evidence().iter().all(|evidence| evidence.layer == Layer::Seccomp));
    });
}
