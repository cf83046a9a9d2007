//! Names with mixed or changing addresses, from a name server over TCP.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use portcullis_egress::{DnsConfig, FetchError, Response};

use crate::fixture::{Client, RecordingJudge, Server, assert_code, loopback, ok};

/// A name server. It counts the questions for IPv4 addresses.
struct NameServer {
    server: Server,
    questions: Arc<AtomicUsize>,
}

impl NameServer {
    fn start(answer: impl Fn(usize) -> Vec<Ipv4Addr> + Send + Sync + 'static) -> Self {
        Self::replying(move |question, earlier_questions| {
            let addresses = if is_a(question) { answer(earlier_questions) } else { Vec::new() };
            reply(question, &addresses)
        })
    }

    /// Starts a name server. `reply` gets each question, and the number of earlier questions for IPv4 addresses.
    fn replying(reply: impl Fn(&[u8], usize) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let questions = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&questions);
        let server = Server::listen(move |mut stream, _requests| {
            while let Some(question) = read_message(&mut stream) {
                let earlier_questions = count.fetch_add(usize::from(is_a(&question)), Ordering::SeqCst);
                write_message(&mut stream, &reply(&question, earlier_questions));
            }
        });
        Self { server, questions }
    }

    fn settings(&self) -> DnsConfig {
        DnsConfig::with_servers(vec![loopback(self.server.port)])
    }
}

/// Reads a question without further records. The question ends with its type and class (RFC 1035, 4.1 and 4.2.2).
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
    let _ignored = stream.write_all(&[&length[..], message].concat());
}

/// Whether a question asks for IPv4 addresses.
fn is_a(question: &[u8]) -> bool {
    question[question.len() - 4..].starts_with(&[0, A])
}

fn reply(question: &[u8], addresses: &[Ipv4Addr]) -> Vec<u8> {
    let records = addresses.iter().map(|address| record(&NAME_OF_THE_QUESTION, A, &address.octets()));
    reply_with(question, &records.collect::<Vec<_>>())
}

/// A reply without an error, with these records as its answer.
fn reply_with(question: &[u8], records: &[Vec<u8>]) -> Vec<u8> {
    let mut reply = question.to_vec();
    (reply[2], reply[3]) = (0x81, 0x80);
    reply[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
    [reply, records.concat()].concat()
}

/// A record with a time to live of one minute (RFC 1035, 4.1.3).
fn record(name: &[u8], kind: u8, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap().to_be_bytes();
    [name, &[0, kind, 0, 1, 0, 0, 0, 60], &length, data].concat()
}

const A: u8 = 1;
const CNAME: u8 = 5;
const AAAA: u8 = 28;
const NAME_OF_THE_QUESTION: [u8; 2] = [0xc0, 12];
const INNER_TEST: &[u8] = b"\x05inner\x04test\0";

const OUTER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const INNER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn judge() -> Arc<RecordingJudge> {
    Arc::new(RecordingJudge { refused: vec![IpAddr::V4(INNER)], ..RecordingJudge::default() })
}

#[tokio::test]
async fn a_name_is_asked_over_tcp_and_judged() {
    let (names, server) = (NameServer::start(|_| vec![OUTER]), Server::answering(ok("hi")));
    let client =
        Client::with_settings(&[server.port], names.settings(), &crate::fixture::Authority::new().pem);
    let judge = judge();
    let response = client.get(&format!("http://name.test:{}/", server.port), &judge).await.unwrap();
    assert_eq!((&response.body[..], response.address), (&b"hi"[..], loopback(server.port)));
    assert_eq!(*judge.questions.lock().unwrap(), ["GET /", "name.test 127.0.0.1"]);
}

#[tokio::test]
async fn a_name_with_one_private_address_is_refused() {
    let server = Server::answering(ok("hi"));
    for addresses in [vec![OUTER, INNER], vec![INNER, OUTER]] {
        let names = NameServer::start(move |_| addresses.clone());
        let client =
            Client::with_settings(&[server.port], names.settings(), &crate::fixture::Authority::new().pem);
        let result = client.get(&format!("http://name.test:{}/", server.port), &judge()).await;
        assert_code(result, "address_private");
    }
    assert_eq!(server.requests(), 0);
}

/// DNS rebinding: the name server gives another address after the first one was judged.
#[tokio::test]
async fn a_name_is_asked_once_for_a_request() {
    let names =
        NameServer::start(|earlier_questions| if earlier_questions == 0 { vec![OUTER] } else { vec![INNER] });
    let server = Server::answering(ok("hi"));
    let client =
        Client::with_settings(&[server.port], names.settings(), &crate::fixture::Authority::new().pem);
    let url = format!("http://name.test:{}/", server.port);
    assert_eq!(client.get(&url, &judge()).await.unwrap().address, loopback(server.port));
    assert_eq!(names.questions.load(Ordering::SeqCst), 1);
    // The next request resolves the name again, and the new address is judged.
    assert_code(client.get(&url, &judge()).await, "address_private");
}

#[tokio::test]
async fn a_name_without_an_address_is_an_error() {
    let names = NameServer::start(|_| Vec::new());
    let client = Client::with_settings(&[80], names.settings(), &crate::fixture::Authority::new().pem);
    assert_code(client.get("http://name.test/", &judge()).await, "name_unresolved");
    // A name with a hundred addresses.
    let names = NameServer::start(|_| (0..100).map(|last| Ipv4Addr::new(192, 0, 2, last)).collect());
    let client = Client::with_settings(&[80], names.settings(), &crate::fixture::Authority::new().pem);
    assert_code(client.get("http://name.test/", &judge()).await, "too_many_addresses");
}

#[tokio::test]
async fn the_next_address_is_dialled_where_one_refuses() {
    let server = Server::answering(ok("hi"));
    // The first address has no listener.
    let names = NameServer::start(|_| vec![INNER, OUTER]);
    let client =
        Client::with_settings(&[server.port], names.settings(), &crate::fixture::Authority::new().pem);
    let url = format!("http://name.test:{}/", server.port);
    let response = client.get(&url, &Arc::new(RecordingJudge::default())).await.unwrap();
    assert_eq!(response.address, loopback(server.port));
}

async fn get_by(
    names: &NameServer,
    server: &Server,
    judge: &Arc<RecordingJudge>,
) -> Result<Response, FetchError> {
    let client =
        Client::with_settings(&[server.port], names.settings(), &crate::fixture::Authority::new().pem);
    client.get(&format!("http://name.test:{}/", server.port), judge).await
}

#[tokio::test]
async fn an_alias_of_a_private_name_is_refused() {
    let server = Server::answering(ok("hi"));
    let alias = || record(&NAME_OF_THE_QUESTION, CNAME, INNER_TEST);
    let at_once = NameServer::replying(move |question, _asked| {
        let address = record(INNER_TEST, A, &INNER.octets());
        reply_with(question, &if is_a(question) { vec![alias(), address] } else { vec![alias()] })
    });
    // The first answer has only the alias, and the address comes when the alias is resolved.
    let in_turn = NameServer::replying(move |question, _asked| {
        let is_alias = question[12..].starts_with(b"\x04name");
        match (is_alias, is_a(question)) {
            (true, _) => reply_with(question, &[alias()]),
            (false, true) => reply(question, &[INNER]),
            (false, false) => reply(question, &[]),
        }
    });
    for names in [at_once, in_turn] {
        assert_code(get_by(&names, &server, &judge()).await, "address_private");
    }
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_loop_of_aliases_ends() {
    let names = NameServer::replying(|question, _asked| {
        let alias_target =
            if question[12..].starts_with(b"\x04name") { INNER_TEST } else { b"\x04name\x04test\0" };
        reply_with(question, &[record(&NAME_OF_THE_QUESTION, CNAME, alias_target)])
    });
    let server = Server::answering(ok("hi"));
    assert_code(get_by(&names, &server, &judge()).await, "name_unresolved");
    assert!(names.questions.load(Ordering::SeqCst) < 100);
}

#[tokio::test]
async fn every_kind_of_address_is_judged() {
    let server = Server::answering(ok("hi"));
    let inner = INNER.to_ipv6_mapped();
    let names = NameServer::replying(move |question, _asked| {
        if is_a(question) {
            reply(question, &[OUTER])
        } else {
            reply_with(question, &[record(&NAME_OF_THE_QUESTION, AAAA, &inner.octets())])
        }
    });
    let judge = Arc::new(RecordingJudge { refused: vec![IpAddr::V6(inner)], ..RecordingJudge::default() });
    assert_code(get_by(&names, &server, &judge).await, "address_private");
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_name_with_too_many_addresses_is_refused() {
    let server = Server::answering(ok("hi"));
    let names =
        NameServer::start(|_| (0..1000_u16).map(|n| Ipv4Addr::from(0x7f00_0100 + u32::from(n))).collect());
    let judge = judge();
    assert_code(get_by(&names, &server, &judge).await, "too_many_addresses");
    assert_eq!(*judge.questions.lock().unwrap(), ["GET /"]);
}

#[tokio::test]
async fn a_name_without_a_usable_answer_is_unresolved() {
    let server = Server::answering(ok("hi"));
    let none = NameServer::start(|_| Vec::new());
    let cut =
        NameServer::replying(|question, _asked| reply(question, &[OUTER])[..question.len() + 5].to_vec());
    // An address of five bytes. In the next server, the name of the record points at itself.
    let odd = NameServer::replying(|question, _asked| {
        reply_with(question, &[record(&NAME_OF_THE_QUESTION, A, &[127, 0, 0, 1, 1])])
    });
    let endless = NameServer::replying(|question, _asked| {
        let own_place = u8::try_from(question.len()).unwrap();
        reply_with(question, &[record(&[0xc0, own_place], A, &OUTER.octets())])
    });
    let of_another = NameServer::replying(|question, _asked| {
        let mut reply = reply(question, &[OUTER]);
        // The id belongs to another question.
        reply[0] = !reply[0];
        reply
    });
    let closes = Server::listen(|_stream, _requests| {});
    let silent = Server::listen(|mut stream, _requests| {
        let _closed = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let ports =
        [&none.server, &cut.server, &odd.server, &endless.server, &of_another.server, &closes, &silent];
    for (index, port) in ports.iter().map(|names| names.port).enumerate() {
        let timeout = Duration::from_millis(500);
        let names = DnsConfig { timeout, ..DnsConfig::with_servers(vec![loopback(port)]) };
        let client = Client::with_settings(&[server.port], names, &crate::fixture::Authority::new().pem);
        let result = client.get(&format!("http://name.test:{}/", server.port), &judge()).await;
        assert_eq!(result.map(|_| ()).map_err(|error| error.code()), Err("name_unresolved"), "{index}");
    }
    assert_eq!(server.requests(), 0);
}
