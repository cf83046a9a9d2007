//! Attempts to connect to a name with several addresses.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use portcullis_egress::{DnsConfig, RequestLimits};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::fixture::{Authority, Client, RecordingJudge, Server, assert_code, loopback, ok};

/// Another address of the loopback device.
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A listener whose queue is full, so that a new connection gets no response.
struct SilentListener {
    _listener: TcpListener,
    _waiting: TcpStream,
}

impl SilentListener {
    async fn bind(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        // A queue of size 0 takes one connection.
        let listener = socket.listen(0).unwrap();
        Self { _listener: listener, _waiting: TcpStream::connect(address).await.unwrap() }
    }
}

fn client(port: u16, hosts: &str) -> Client {
    let names = DnsConfig { hosts: hosts.to_owned(), ..DnsConfig::with_servers(Vec::new()) };
    Client::with_settings(&[port], names, &Authority::new().pem)
}

/// A judge whose time limits are longer than any test.
fn patient_judge() -> Arc<RecordingJudge> {
    let limits = RequestLimits {
        connect_timeout: Duration::from_secs(3600),
        total_timeout: Duration::from_secs(7200),
        first_byte_timeout: Duration::from_secs(7200),
        ..RequestLimits::default()
    };
    Arc::new(RecordingJudge { limits, ..RecordingJudge::default() })
}

#[tokio::test]
async fn a_silent_address_does_not_delay_the_next() {
    let server = Server::answering(ok("hi"));
    let _silent = SilentListener::bind(SocketAddr::from((OTHER, server.port))).await;
    let client = client(server.port, "127.0.0.2 two.test\n127.0.0.1 two.test");
    let judge = patient_judge();
    let response = client.get(&format!("http://two.test:{}/", server.port), &judge).await.unwrap();
    assert_eq!(response.address, loopback(server.port));
    // Both addresses were judged before one was dialled.
    let questions = judge.questions.lock().unwrap();
    assert_eq!(*questions, ["GET /", "two.test 127.0.0.2", "two.test 127.0.0.1"]);
}

#[tokio::test]
async fn a_refusing_address_leads_to_the_next_immediately() {
    let server = Server::answering(ok("hi"));
    // The other two addresses have no listener on this port.
    let client = client(server.port, "127.0.0.2 many.test\n127.0.0.3 many.test\n127.0.0.1 many.test");
    let response = client.get(&format!("http://many.test:{}/", server.port), &patient_judge()).await.unwrap();
    assert_eq!(response.address, loopback(server.port));
}

#[tokio::test]
async fn no_address_is_tried_where_one_is_refused() {
    let server = Server::answering(ok("hi"));
    let client = client(server.port, "127.0.0.1 two.test\n127.0.0.2 two.test");
    let judge = Arc::new(RecordingJudge { refused: vec![IpAddr::V4(OTHER)], ..RecordingJudge::default() });
    let result = client.get(&format!("http://two.test:{}/", server.port), &judge).await;
    assert_code(result, "address_private");
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn ipv6_without_a_server_leads_to_ipv4() {
    let server = Server::answering(ok("hi"));
    let client = client(server.port, "127.0.0.1 two.test\n::1 two.test");
    let judge = patient_judge();
    let response = client.get(&format!("http://two.test:{}/", server.port), &judge).await.unwrap();
    assert_eq!(response.address, loopback(server.port));
    let sixth = format!("two.test {}", Ipv6Addr::LOCALHOST);
    assert!(judge.questions.lock().unwrap().contains(&sixth));
}

#[tokio::test]
async fn silent_addresses_end_at_their_limit() {
    let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let _first = SilentListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
    let _second = SilentListener::bind(SocketAddr::from((OTHER, port))).await;
    let client = client(port, "127.0.0.1 two.test\n127.0.0.2 two.test");
    let limits = RequestLimits { connect_timeout: Duration::from_millis(100), ..RequestLimits::default() };
    let judge = Arc::new(RecordingJudge { limits, ..RecordingJudge::default() });
    assert_code(client.get(&format!("http://two.test:{port}/"), &judge).await, "connect_timeout");
}
