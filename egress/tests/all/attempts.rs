//! Attempts to connect to a name with several addresses.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use portcullis_egress::{Limits, NameSettings};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::world::{Asked, Authority, Client, Server, assert_code, loopback, ok};

/// A further address of the loopback device.
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A listener whose queue is full, so that a further connection gets no answer.
struct Silent {
    _listener: TcpListener,
    _waiting: TcpStream,
}

impl Silent {
    async fn at(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        // A queue of 0 takes one connection.
        let listener = socket.listen(0).unwrap();
        Self { _listener: listener, _waiting: TcpStream::connect(address).await.unwrap() }
    }
}

fn client(port: u16, hosts: &str) -> Client {
    let names = NameSettings { hosts: hosts.to_owned(), ..NameSettings::of_servers(Vec::new()) };
    Client::with(&[port], names, &Authority::new().pem)
}

/// The time limits of a connection are longer than the test may last.
fn patient() -> Arc<Asked> {
    let limits = Limits {
        connect: Duration::from_secs(3600),
        total: Duration::from_secs(7200),
        first_byte: Duration::from_secs(7200),
        ..Limits::default()
    };
    Arc::new(Asked { limits, ..Asked::default() })
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_not_waited_for() {
    let server = Server::answering(ok("hi"));
    let _silent = Silent::at(SocketAddr::from((OTHER, server.port))).await;
    let client = client(server.port, "127.0.0.2 two.test\n127.0.0.1 two.test");
    let judge = patient();
    let response = client.get(&format!("http://two.test:{}/", server.port), &judge).await.unwrap();
    assert_eq!(response.address, loopback(server.port));
    // Both were judged before either was dialled.
    let questions = judge.questions.lock().unwrap();
    assert_eq!(*questions, ["GET /", "two.test 127.0.0.2", "two.test 127.0.0.1"]);
}

#[tokio::test]
async fn a_refusing_address_leads_to_the_next_at_once() {
    let server = Server::answering(ok("hi"));
    // Nothing listens on this port of the other addresses.
    let client = client(server.port, "127.0.0.2 many.test\n127.0.0.3 many.test\n127.0.0.1 many.test");
    let response = client.get(&format!("http://many.test:{}/", server.port), &patient()).await.unwrap();
    assert_eq!(response.address, loopback(server.port));
}

#[tokio::test]
async fn no_address_is_tried_where_one_is_refused() {
    let server = Server::answering(ok("hi"));
    let client = client(server.port, "127.0.0.1 two.test\n127.0.0.2 two.test");
    let judge = Arc::new(Asked { refused: vec![IpAddr::V4(OTHER)], ..Asked::default() });
    let result = client.get(&format!("http://two.test:{}/", server.port), &judge).await;
    assert_code(result, "address_private");
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn ipv6_without_a_server_leads_to_ipv4() {
    let server = Server::answering(ok("hi"));
    let client = client(server.port, "127.0.0.1 two.test\n::1 two.test");
    let judge = patient();
    let response = client.get(&format!("http://two.test:{}/", server.port), &judge).await.unwrap();
    assert_eq!(response.address, loopback(server.port));
    let sixth = format!("two.test {}", Ipv6Addr::LOCALHOST);
    assert!(judge.questions.lock().unwrap().contains(&sixth));
}

#[tokio::test]
async fn silent_addresses_end_at_their_limit() {
    let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let _first = Silent::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
    let _second = Silent::at(SocketAddr::from((OTHER, port))).await;
    let client = client(port, "127.0.0.1 two.test\n127.0.0.2 two.test");
    let limits = Limits { connect: Duration::from_millis(100), ..Limits::default() };
    let judge = Arc::new(Asked { limits, ..Asked::default() });
    assert_code(client.get(&format!("http://two.test:{port}/"), &judge).await, "connect_timeout");
}
