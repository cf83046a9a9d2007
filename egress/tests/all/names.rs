//! Names whose addresses are mixed, or change, answered by a name server over TCP.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use portcullis_egress::NameSettings;

use crate::world::{Asked, Client, Server, assert_code, loopback, ok};

/// A name server. `answer` gets the number of questions for addresses of version 4 before this one; to all
/// others there is no answer.
struct Names {
    server: Server,
    questions: Arc<AtomicUsize>,
}

impl Names {
    fn start(answer: impl Fn(usize) -> Vec<Ipv4Addr> + Send + Sync + 'static) -> Self {
        let questions = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&questions);
        let server = Server::listen(move |mut stream, _requests| {
            while let Some(question) = read_message(&mut stream) {
                let addresses = match question[question.len() - 4..] {
                    [0, 1, ..] => answer(count.fetch_add(1, Ordering::SeqCst)),
                    _ => Vec::new(),
                };
                write_message(&mut stream, &reply(&question, &addresses));
            }
        });
        Self { server, questions }
    }

    fn settings(&self) -> NameSettings {
        NameSettings::of_servers(vec![loopback(self.server.port)])
    }
}

/// A question without further records; it ends with its type and class (RFC 1035, 4.1 and 4.2.2).
fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message).ok()?;
    assert_eq!(message[4..12], [0, 1, 0, 0, 0, 0, 0, 0], "one question and nothing else");
    Some(message)
}

fn write_message(stream: &mut TcpStream, message: &[u8]) {
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    let _gone = stream.write_all(&[&length[..], message].concat());
}

fn reply(question: &[u8], addresses: &[Ipv4Addr]) -> Vec<u8> {
    const NAME_OF_THE_QUESTION: [u8; 2] = [0xc0, 12];
    const TYPE_CLASS_TTL_LENGTH: [u8; 10] = [0, 1, 0, 1, 0, 0, 0, 60, 0, 4];
    let mut reply = question.to_vec();
    (reply[2], reply[3]) = (0x81, 0x80);
    reply[6..8].copy_from_slice(&u16::try_from(addresses.len()).unwrap().to_be_bytes());
    for address in addresses {
        reply.extend(NAME_OF_THE_QUESTION.iter().chain(&TYPE_CLASS_TTL_LENGTH).chain(&address.octets()));
    }
    reply
}

const OUTER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const INNER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn judge() -> Arc<Asked> {
    Arc::new(Asked { refused: vec![IpAddr::V4(INNER)], ..Asked::default() })
}

#[tokio::test]
async fn a_name_is_asked_over_tcp_and_judged() {
    let (names, server) = (Names::start(|_| vec![OUTER]), Server::answering(ok("hi")));
    let client = Client::with(&[server.port], names.settings(), &crate::world::Authority::new().pem);
    let judge = judge();
    let response = client.get(&format!("http://name.test:{}/", server.port), &judge).await.unwrap();
    assert_eq!((&response.body[..], response.address), (&b"hi"[..], loopback(server.port)));
    assert_eq!(*judge.questions.lock().unwrap(), ["GET /", "name.test 127.0.0.1"]);
}

#[tokio::test]
async fn a_name_with_one_private_address_is_refused() {
    let server = Server::answering(ok("hi"));
    for addresses in [vec![OUTER, INNER], vec![INNER, OUTER]] {
        let names = Names::start(move |_| addresses.clone());
        let client = Client::with(&[server.port], names.settings(), &crate::world::Authority::new().pem);
        let result = client.get(&format!("http://name.test:{}/", server.port), &judge()).await;
        assert_code(result, "address_private");
    }
    assert_eq!(server.requests(), 0);
}

/// DNS rebinding: the name changes between the judgement and the connection.
#[tokio::test]
async fn a_name_is_asked_once_for_a_request() {
    let names = Names::start(|asked| if asked == 0 { vec![OUTER] } else { vec![INNER] });
    let server = Server::answering(ok("hi"));
    let client = Client::with(&[server.port], names.settings(), &crate::world::Authority::new().pem);
    let url = format!("http://name.test:{}/", server.port);
    assert_eq!(client.get(&url, &judge()).await.unwrap().address, loopback(server.port));
    assert_eq!(names.questions.load(Ordering::SeqCst), 1);
    // The next request asks again, and is judged by the new answer.
    assert_code(client.get(&url, &judge()).await, "address_private");
}

#[tokio::test]
async fn a_name_without_an_address_is_an_error() {
    let names = Names::start(|_| Vec::new());
    let client = Client::with(&[80], names.settings(), &crate::world::Authority::new().pem);
    assert_code(client.get("http://name.test/", &judge()).await, "name_unresolved");
    // A name of a hundred addresses.
    let names = Names::start(|_| (0..100).map(|last| Ipv4Addr::new(192, 0, 2, last)).collect());
    let client = Client::with(&[80], names.settings(), &crate::world::Authority::new().pem);
    assert_code(client.get("http://name.test/", &judge()).await, "too_many_addresses");
}

#[tokio::test]
async fn the_next_address_is_dialled_where_one_refuses() {
    let server = Server::answering(ok("hi"));
    // Nothing listens on the first.
    let names = Names::start(|_| vec![INNER, OUTER]);
    let client = Client::with(&[server.port], names.settings(), &crate::world::Authority::new().pem);
    let url = format!("http://name.test:{}/", server.port);
    let response = client.get(&url, &Arc::new(Asked::default())).await.unwrap();
    assert_eq!(response.address, loopback(server.port));
}
