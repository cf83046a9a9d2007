//! Listeners outside the session. They receive something if a command gets out.

use std::{
    fs::Permissions,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::PermissionsExt as _,
            net::{SocketAddr, UnixDatagram, UnixListener},
        },
    },
};

use crate::fixture::Fixture;

/// One listener of each kind that a command could reach.
pub(crate) struct Listeners {
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
    unix: Vec<UnixListener>,
    datagrams: UnixDatagram,
    /// The words that stand for the listeners in scripts.
    pub(crate) names: Vec<(&'static str, String)>,
}

impl Listeners {
    /// `docker.sock` in the home and `agent.1` in `tmp`, which sessions can write to, `run/shell.sock`
    /// outside, two abstract sockets, and the loopback's ports.
    pub(crate) fn new(fixture: &Fixture, mark: &str) -> Self {
        let tcp: Vec<TcpListener> =
            LOOPBACKS.iter().map(|address| TcpListener::bind((*address, 0)).unwrap()).collect();
        let udp: Vec<UdpSocket> =
            LOOPBACKS.iter().map(|address| UdpSocket::bind((*address, 0)).unwrap()).collect();
        std::fs::create_dir(fixture.path("run")).unwrap();
        let control = fixture.path("run/shell.sock");
        let mut unix = Vec::new();
        for path in [fixture.path("shared/docker.sock"), fixture.path("tmp/agent.1"), control.clone()] {
            unix.push(UnixListener::bind(&path).unwrap());
            std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        }
        let abstract_name = |name: &str| SocketAddr::from_abstract_name(name).unwrap();
        let stream = format!("{mark}-stream");
        unix.push(UnixListener::bind_addr(&abstract_name(&stream)).unwrap());
        let datagram = format!("{mark}-datagram");
        let datagrams = UnixDatagram::bind_addr(&abstract_name(&datagram)).unwrap();

        tcp.iter().for_each(|one| one.set_nonblocking(true).unwrap());
        udp.iter().for_each(|one| one.set_nonblocking(true).unwrap());
        unix.iter().for_each(|one| one.set_nonblocking(true).unwrap());
        datagrams.set_nonblocking(true).unwrap();
        let names = vec![
            ("tcp4", tcp[0].local_addr().unwrap().port().to_string()),
            ("tcp6", tcp[1].local_addr().unwrap().port().to_string()),
            ("udp4", udp[0].local_addr().unwrap().port().to_string()),
            ("udp6", udp[1].local_addr().unwrap().port().to_string()),
            ("control", control.display().to_string()),
            ("abstract", stream),
            ("datagrams", datagram),
        ];
        Self { tcp, udp, unix, datagrams, names }
    }

    /// The number of listeners that have received something since the last call.
    pub(crate) fn heard(&self) -> usize {
        let mut packet = [0; 512];
        let tcp = self.tcp.iter().filter(|one| one.accept().is_ok()).count();
        let udp = self.udp.iter().filter(|one| one.recv(&mut packet).is_ok()).count();
        let unix = self.unix.iter().filter(|one| one.accept().is_ok()).count();
        tcp + udp + unix + usize::from(self.datagrams.recv(&mut packet).is_ok())
    }
}

const LOOPBACKS: [&str; 2] = ["127.0.0.1", "::1"];
