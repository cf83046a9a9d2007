//! Tunnels: what passes, and what a hostile client gets.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, atomic::AtomicUsize},
    thread,
    time::Duration,
};

use portcullis_egress::{CancellationToken, NameSettings, TunnelFacts, TunnelLimits, TunnelWatch};
use rcgen::CertificateParams;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};

use crate::world::{Asked, Authority, Client, Server, ok, read_head, send};

/// A TLS server named `good.test`, a confined client that resolves two names to it, and its judge.
struct World {
    authority: Authority,
    server: Server,
    client: Client,
    judge: Arc<Asked>,
}

impl World {
    fn new() -> Self {
        Self::with(Asked::default())
    }

    fn with(judge: Asked) -> Self {
        let authority = Authority::new();
        let params = CertificateParams::new(vec!["good.test".to_owned(), "other.test".to_owned()]).unwrap();
        let config = authority.issue(&params);
        let server = Server::listen(move |stream: TcpStream, requests: &AtomicUsize| {
            requests.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            if !read_head(&mut stream).is_empty() {
                send(&mut stream, ok("hello").as_bytes());
                stream.conn.send_close_notify();
                let _gone = stream.conn.complete_io(&mut stream.sock);
            }
        });
        let names = NameSettings {
            hosts: "127.0.0.1 good.test other.test".to_owned(),
            ..NameSettings::of_servers(Vec::new())
        };
        let client = Client::with(&[server.port], names, &authority.pem);
        Self { authority, server, client, judge: Arc::new(judge) }
    }

    fn connect(&self, host: &str) -> String {
        format!("CONNECT {host}:{} HTTP/1.1\r\nHost: {host}\r\n\r\n", self.server.port)
    }

    /// Serves one client, which runs in a thread of its own, and returns what both have to say.
    async fn tunnel<T: Send + 'static>(
        &self,
        limits: TunnelLimits,
        client: impl FnOnce(TcpStream) -> T + Send + 'static,
    ) -> (T, TunnelFacts) {
        let (ours, theirs) = pair();
        let client = thread::spawn(move || client(theirs));
        let watch = TunnelWatch::default();
        let judge = Arc::<Asked>::clone(&self.judge);
        let cancel = CancellationToken::new();
        self.client.egress.tunnel(judge, ours, limits, watch.clone(), cancel).await;
        (client.join().unwrap(), watch.facts())
    }

    /// Sends these bytes, after the answer to a request if that is asked for, and expects this end.
    async fn check(&self, request: &str, hello: Option<Vec<u8>>, end: &str) {
        let request = request.to_owned();
        let shown = request.clone();
        let client = move |mut stream: TcpStream| {
            stream.write_all(request.as_bytes()).unwrap();
            if let Some(hello) = hello {
                let answer = read_head(&mut stream);
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                // Errors are ignored: the forwarder may have hung up.
                let _gone = stream.write_all(&hello);
            }
            let _gone = stream.shutdown(Shutdown::Write);
            let mut answer = Vec::new();
            let _reset = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        };
        let before = self.server.requests();
        let (answer, facts) = self.tunnel(TunnelLimits::default(), client).await;
        let ended = facts.end.as_ref().map(|end| end.as_str());
        assert_eq!(ended, Some(end), "{shown:?}: {facts:?}, {answer:?}");
        assert_eq!((facts.address, facts.sent, self.server.requests()), (None, 0, before), "{shown:?}");
    }

    /// The first message of TLS that names this server.
    fn hello(&self, name: &str) -> Vec<u8> {
        let mut connection = self.tls(name);
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn tls(&self, name: &str) -> ClientConnection {
        client_tls(&self.authority.pem, name)
    }
}

pub(crate) fn client_tls(authority: &str, name: &str) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap()
}

/// A connection, the forwarder's end first.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

#[tokio::test]
async fn tls_to_a_granted_host_passes_and_is_counted() {
    let world = World::new();
    let (request, connection) = (world.connect("good.test"), world.tls("good.test"));
    let client = move |mut stream: TcpStream| {
        stream.write_all(request.as_bytes()).unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 200 "));
        let mut tls = StreamOwned::new(connection, stream);
        tls.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        tls.read_to_string(&mut answer).unwrap();
        answer
    };
    let (answer, facts) = world.tunnel(TunnelLimits::default(), client).await;
    assert!(answer.ends_with("hello"), "{answer}");
    assert_eq!(facts.target, Some(("good.test".to_owned(), world.server.port)));
    assert_eq!(facts.address.map(|address| address.port()), Some(world.server.port));
    assert_eq!(facts.end.map(|end| end.as_str()), Some("closed"));
    assert!(facts.sent > 200 && facts.received > 500, "{} {}", facts.sent, facts.received);
    let questions = world.judge.questions.lock().unwrap().clone();
    assert_eq!(questions, ["CONNECT /", "good.test 127.0.0.1"]);
}

#[tokio::test]
async fn a_first_message_over_several_records_passes() {
    let world = World::new();
    let (request, mut connection) = (world.connect("good.test"), world.tls("good.test"));
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    // Each record has a header of five bytes, and these have at most 40 more.
    let records: Vec<Vec<u8>> = hello[5..]
        .chunks(40)
        .map(|part| [&[0x16, 3, 1, 0, u8::try_from(part.len()).unwrap()], part].concat())
        .collect();
    assert!(records.len() > 3);
    let client = move |mut stream: TcpStream| {
        stream.write_all(request.as_bytes()).unwrap();
        read_head(&mut stream);
        for record in &records {
            stream.write_all(record).unwrap();
        }
        let mut tls = StreamOwned::new(connection, stream);
        tls.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        tls.read_to_string(&mut answer).unwrap();
        answer
    };
    let (answer, facts) = world.tunnel(TunnelLimits::default(), client).await;
    assert!(answer.ends_with("hello"), "{answer}: {facts:?}");
}

#[tokio::test]
async fn a_first_message_with_another_name_or_none_is_refused() {
    let world = World::new();
    let to_good = world.connect("good.test");
    // Also one that the same server has a certificate for.
    for name in ["other.test", "evil.test", "good.test.evil.test"] {
        world.check(&to_good, Some(world.hello(name)), "tunnel_other_server_name").await;
    }
    // A message for an address names no server.
    world.check(&to_good, Some(world.hello("127.0.0.1")), "tunnel_no_server_name").await;
}

#[tokio::test]
async fn anything_but_tls_is_refused() {
    let world = World::new();
    let to_good = world.connect("good.test");
    let hello = world.hello("good.test");
    let http = b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n".to_vec();
    let mut wrong_kind = hello.clone();
    wrong_kind[5] = 2;
    let flood = [0x16, 3, 1, 0, 1, 1].repeat(20_000);
    for bytes in
        [http, b"SSH-2.0-x\r\n".to_vec(), wrong_kind, hello[..hello.len() - 1].to_vec(), Vec::new(), flood]
    {
        world.check(&to_good, Some(bytes), "tunnel_not_tls").await;
    }
}

#[tokio::test]
async fn other_requests_are_refused_before_anything_else() {
    let world = World::new();
    let port = world.server.port;
    for (request, end) in [
        (format!("GET http://good.test:{port}/ HTTP/1.1\r\nHost: good.test\r\n\r\n"), "tunnel_not_connect"),
        (format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n"), "tunnel_to_address"),
        (format!("CONNECT [::1]:{port} HTTP/1.1\r\n\r\n"), "tunnel_to_address"),
        (format!("CONNECT 0x7f.1:{port} HTTP/1.1\r\n\r\n"), "tunnel_to_address"),
        ("CONNECT good.test HTTP/1.1\r\n\r\n".to_owned(), "tunnel_request_invalid"),
        (format!("CONNECT good.test:{port} HTTP/1.1\r\nHost: other.test\r\n\r\n"), "tunnel_request_invalid"),
        (format!("CONNECT good.test:{port} HTTP/1.1\r\nContent-Length: 9\r\n\r\n"), "tunnel_request_invalid"),
        (
            format!("CONNECT good.test:{port} HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9000)),
            "tunnel_request_invalid",
        ),
        ("\u{16}\u{3}\u{1}".to_owned(), "tunnel_request_invalid"),
        (String::new(), "tunnel_request_invalid"),
        ("CONNECT good.test:1 HTTP/1.1\r\n\r\n".to_owned(), "port_closed"),
        (format!("CONNECT nowhere.test:{port} HTTP/1.1\r\n\r\n"), "no_name_servers"),
    ] {
        world.check(&request, None, end).await;
    }
}

#[tokio::test]
async fn an_address_that_the_judge_refuses_is_not_dialled() {
    let refused = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let world = World::with(Asked { refused, ..Asked::default() });
    world.check(&world.connect("good.test"), None, "address_private").await;
}

#[tokio::test]
async fn slow_and_silent_clients_are_cut() {
    let world = World::new();
    let limits = TunnelLimits { greeting: Duration::from_millis(50), ..TunnelLimits::default() };
    let quiet = |mut stream: TcpStream| {
        let mut answer = String::new();
        let _reset = stream.read_to_string(&mut answer);
        answer
    };
    let (answer, facts) = world.tunnel(limits, quiet).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(facts.end.map(|end| end.as_str()), Some("tunnel_timeout"));
    let request = world.connect("good.test");
    let silent = move |mut stream: TcpStream| {
        stream.write_all(request.as_bytes()).unwrap();
        quiet(stream)
    };
    let (_, facts) = world.tunnel(limits, silent).await;
    assert_eq!(facts.end.map(|end| end.as_str()), Some("tunnel_timeout"));
    assert_eq!(world.server.requests(), 0);

    let (request, hello) = (world.connect("good.test"), world.hello("good.test"));
    let idle = move |mut stream: TcpStream| {
        stream.write_all(request.as_bytes()).unwrap();
        read_head(&mut stream);
        stream.write_all(&hello).unwrap();
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer);
        answer.len()
    };
    let limits = TunnelLimits { idle: Duration::from_millis(50), ..TunnelLimits::default() };
    let (received, facts) = world.tunnel(limits, idle).await;
    assert_eq!(facts.end.map(|end| end.as_str()), Some("idle"));
    assert_eq!(received as u64, facts.received);
    assert!(facts.address.is_some());
}

#[tokio::test]
async fn cancelling_ends_a_tunnel() {
    let world = World::new();
    let (request, hello) = (world.connect("good.test"), world.hello("good.test"));
    let (ours, mut theirs) = pair();
    let (watch, cancel) = (TunnelWatch::default(), CancellationToken::new());
    let client = thread::spawn({
        let cancel = cancel.clone();
        move || {
            theirs.write_all(request.as_bytes()).unwrap();
            read_head(&mut theirs);
            theirs.write_all(&hello).unwrap();
            // The server's first bytes: the tunnel is open.
            theirs.read_exact(&mut [0; 5]).unwrap();
            cancel.cancel();
            let _reset = theirs.read_to_end(&mut Vec::new());
        }
    });
    let judge = Arc::<Asked>::clone(&world.judge);
    world.client.egress.tunnel(judge, ours, TunnelLimits::default(), watch.clone(), cancel).await;
    client.join().unwrap();
    assert_eq!(watch.facts().end.map(|end| end.as_str()), Some("cancelled"));
}
