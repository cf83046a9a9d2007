//! Tunnels: the connections that are let through, and the answers to hostile clients.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, atomic::AtomicUsize},
    thread,
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, future::LocalBoxFuture, stream::FuturesUnordered};
use portcullis_egress::{
    CancellationToken, DnsConfig, RequestLimits, TunnelLimits, TunnelReport, TunnelShare, TunnelWatch,
};
use rcgen::CertificateParams;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};

use crate::fixture::{Authority, Client, RecordingJudge, Server, loopback, ok, read_head, send};

/// A TLS server named `good.test`, a confined client that resolves two names to it, and its judge.
struct Fixture {
    authority: Authority,
    server: Server,
    client: Client,
    judge: Arc<RecordingJudge>,
}

impl Fixture {
    fn new() -> Self {
        Self::with_judge(RecordingJudge::default())
    }

    fn with_judge(judge: RecordingJudge) -> Self {
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
                let _ignored = stream.conn.complete_io(&mut stream.sock);
            }
        });
        let names = DnsConfig {
            hosts: "127.0.0.1 good.test other.test".to_owned(),
            ..DnsConfig::with_servers(Vec::new())
        };
        let client = Client::with_settings(&[server.port], names, &authority.pem);
        Self { authority, server, client, judge: Arc::new(judge) }
    }

    fn connect(&self, host: &str) -> String {
        format!("CONNECT {host}:{} HTTP/1.1\r\nHost: {host}\r\n\r\n", self.server.port)
    }

    /// Serves one client, which runs on a separate thread. Returns the client's result and the facts of the tunnel.
    async fn tunnel<T: Send + 'static>(
        &self,
        limits: TunnelLimits,
        client: impl FnOnce(TcpStream) -> T + Send + 'static,
    ) -> (T, TunnelReport) {
        let (ours, theirs) = connected_pair();
        let client = thread::spawn(move || client(theirs));
        let watch = TunnelWatch::default();
        let judge = Arc::<RecordingJudge>::clone(&self.judge);
        let cancel = CancellationToken::new();
        self.client.egress.tunnel(judge, ours, limits, TunnelShare::default(), watch.clone(), cancel).await;
        (client.join().unwrap(), watch.report())
    }

    /// Checks that a client's tunnel ends with this code before a server is reached. The client sends a request, and
    /// then `hello` if the tunnel was granted.
    async fn check(&self, request: &str, hello: Option<Vec<u8>>, end: &str) {
        let request = request.to_owned();
        let request_text = request.clone();
        let client = move |mut stream: TcpStream| {
            stream.write_all(request.as_bytes()).unwrap();
            if let Some(hello) = hello {
                let response = read_head(&mut stream);
                assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
                // The forwarder may have closed the connection, so an error is ignored.
                let _ignored = stream.write_all(&hello);
            }
            let _ignored = stream.shutdown(Shutdown::Write);
            let mut response = Vec::new();
            let _reset = stream.read_to_end(&mut response);
            String::from_utf8_lossy(&response).into_owned()
        };
        let before = self.server.requests();
        let (response, report) = self.tunnel(TunnelLimits::default(), client).await;
        let ended = report.end.as_ref().map(|end| end.as_str());
        assert_eq!(ended, Some(end), "{request_text:?}: {report:?}, {response:?}");
        assert_eq!(
            (report.address, report.sent, self.server.requests()),
            (None, 0, before),
            "{request_text:?}"
        );
    }

    /// The first TLS message of a client that asks for this server name.
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

/// Both ends of a connection: the forwarder's end, then the client's.
fn connected_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

#[tokio::test]
async fn tls_to_a_granted_host_passes_and_is_counted() {
    let fixture = Fixture::new();
    let (request, connection) = (fixture.connect("good.test"), fixture.tls("good.test"));
    let client = move |mut stream: TcpStream| {
        stream.write_all(request.as_bytes()).unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 200 "));
        let mut tls = StreamOwned::new(connection, stream);
        tls.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut response = String::new();
        tls.read_to_string(&mut response).unwrap();
        response
    };
    let (response, report) = fixture.tunnel(TunnelLimits::default(), client).await;
    assert!(response.ends_with("hello"), "{response}");
    assert_eq!(report.target, Some(("good.test".to_owned(), fixture.server.port)));
    assert_eq!(report.address.map(|address| address.port()), Some(fixture.server.port));
    assert_eq!(report.end.map(|end| end.as_str()), Some("closed"));
    assert!(report.sent > 200 && report.received > 500, "{} {}", report.sent, report.received);
    let questions = fixture.judge.questions.lock().unwrap().clone();
    assert_eq!(questions, ["CONNECT /", "good.test 127.0.0.1"]);
}

#[tokio::test]
async fn a_first_message_over_several_records_passes() {
    let fixture = Fixture::new();
    let (request, mut connection) = (fixture.connect("good.test"), fixture.tls("good.test"));
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    // Each record is a header of five bytes and at most 40 bytes of the message.
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
        let mut response = String::new();
        tls.read_to_string(&mut response).unwrap();
        response
    };
    let (response, report) = fixture.tunnel(TunnelLimits::default(), client).await;
    assert!(response.ends_with("hello"), "{response}: {report:?}");
}

#[tokio::test]
async fn a_first_message_with_another_name_or_none_is_refused() {
    let fixture = Fixture::new();
    let to_good = fixture.connect("good.test");
    // `other.test` is refused too, although the server has a certificate for it.
    for name in ["other.test", "evil.test", "good.test.evil.test"] {
        fixture.check(&to_good, Some(fixture.hello(name)), "tunnel_other_server_name").await;
    }
    // A first message for an IP address has no server name.
    fixture.check(&to_good, Some(fixture.hello("127.0.0.1")), "tunnel_no_server_name").await;
}

#[tokio::test]
async fn anything_but_tls_is_refused() {
    let fixture = Fixture::new();
    let to_good = fixture.connect("good.test");
    let hello = fixture.hello("good.test");
    let http = b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n".to_vec();
    let mut wrong_kind = hello.clone();
    wrong_kind[5] = 2;
    let flood = [0x16, 3, 1, 0, 1, 1].repeat(20_000);
    for bytes in
        [http, b"SSH-2.0-x\r\n".to_vec(), wrong_kind, hello[..hello.len() - 1].to_vec(), Vec::new(), flood]
    {
        fixture.check(&to_good, Some(bytes), "tunnel_not_tls").await;
    }
}

#[tokio::test]
async fn other_requests_are_refused_before_anything_else() {
    let fixture = Fixture::new();
    let port = fixture.server.port;
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
        fixture.check(&request, None, end).await;
    }
}

#[tokio::test]
async fn an_address_that_the_judge_refuses_is_not_dialled() {
    let refused = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let fixture = Fixture::with_judge(RecordingJudge { refused, ..RecordingJudge::default() });
    fixture.check(&fixture.connect("good.test"), None, "address_private").await;
}

#[tokio::test]
async fn a_silent_name_server_is_reported_as_such() {
    let silent = Server::listen(|mut stream: TcpStream, _requests: &AtomicUsize| {
        let _ended = stream.read_to_end(&mut Vec::new());
    });
    let limits = RequestLimits { first_byte_timeout: Duration::from_millis(100), ..RequestLimits::default() };
    let mut fixture = Fixture::with_judge(RecordingJudge { limits, ..RecordingJudge::default() });
    let names = DnsConfig::with_servers(vec![loopback(silent.port)]);
    fixture.client = Client::with_settings(&[fixture.server.port], names, &fixture.authority.pem);
    fixture.check(&fixture.connect("slow.test"), None, "resolve_timeout").await;
}

#[tokio::test]
async fn slow_and_silent_clients_are_cut() {
    let fixture = Fixture::new();
    let limits = TunnelLimits { greeting_timeout: Duration::from_millis(50), ..TunnelLimits::default() };
    let quiet = |mut stream: TcpStream| {
        let mut response = String::new();
        let _reset = stream.read_to_string(&mut response);
        response
    };
    let (response, report) = fixture.tunnel(limits, quiet).await;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert_eq!(report.end.map(|end| end.as_str()), Some("tunnel_timeout"));
    let request = fixture.connect("good.test");
    let silent = move |mut stream: TcpStream| {
        stream.write_all(request.as_bytes()).unwrap();
        quiet(stream)
    };
    let (_, report) = fixture.tunnel(limits, silent).await;
    assert_eq!(report.end.map(|end| end.as_str()), Some("tunnel_timeout"));
    assert_eq!(fixture.server.requests(), 0);

    let (request, hello) = (fixture.connect("good.test"), fixture.hello("good.test"));
    let idle = move |mut stream: TcpStream| {
        stream.write_all(request.as_bytes()).unwrap();
        read_head(&mut stream);
        stream.write_all(&hello).unwrap();
        let mut response = Vec::new();
        let _reset = stream.read_to_end(&mut response);
        response.len()
    };
    let limits = TunnelLimits { idle_timeout: Duration::from_millis(50), ..TunnelLimits::default() };
    let (received, report) = fixture.tunnel(limits, idle).await;
    assert_eq!(report.end.map(|end| end.as_str()), Some("idle"));
    assert_eq!(received as u64, report.received);
    assert!(report.address.is_some());
}

#[tokio::test]
async fn cancelling_ends_a_tunnel() {
    let fixture = Fixture::new();
    let (request, hello) = (fixture.connect("good.test"), fixture.hello("good.test"));
    let (ours, mut theirs) = connected_pair();
    let (watch, cancel) = (TunnelWatch::default(), CancellationToken::new());
    let client = thread::spawn({
        let cancel = cancel.clone();
        move || {
            theirs.write_all(request.as_bytes()).unwrap();
            read_head(&mut theirs);
            theirs.write_all(&hello).unwrap();
            // The first bytes of the server show that the tunnel is open.
            theirs.read_exact(&mut [0; 5]).unwrap();
            cancel.cancel();
            let _reset = theirs.read_to_end(&mut Vec::new());
        }
    });
    let judge = Arc::<RecordingJudge>::clone(&fixture.judge);
    let (limits, share) = (TunnelLimits::default(), TunnelShare::default());
    fixture.client.egress.tunnel(judge, ours, limits, share, watch.clone(), cancel).await;
    client.join().unwrap();
    assert_eq!(watch.report().end.map(|end| end.as_str()), Some("cancelled"));
}

/// The open tunnels of a test. They are polled while the test waits for a response.
type OpenTunnels<'w> = FuturesUnordered<LocalBoxFuture<'w, ()>>;

/// Asks for a tunnel. Returns the client's end, the head of the response, and the watch with the tunnel's facts.
async fn ask<'w>(
    fixture: &'w Fixture,
    carried: &mut OpenTunnels<'w>,
    share: &TunnelShare,
) -> (TcpStream, String, TunnelWatch) {
    let ((ours, mut theirs), request) = (connected_pair(), fixture.connect("good.test"));
    // The tunnel waits for the first TLS message for an hour, so it stays open until the test ends.
    let limits = TunnelLimits { greeting_timeout: Duration::from_secs(3600), ..TunnelLimits::default() };
    let (watch, cancel) = (TunnelWatch::default(), CancellationToken::new());
    let judge = Arc::<RecordingJudge>::clone(&fixture.judge);
    let tunnel = fixture.client.egress.tunnel(judge, ours, limits, share.clone(), watch.clone(), cancel);
    carried.push(tunnel.boxed_local());
    let (answered, response) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        theirs.write_all(request.as_bytes()).unwrap();
        let head = read_head(&mut theirs);
        answered.send((theirs, head)).unwrap();
    });
    let mut response = std::pin::pin!(response);
    loop {
        tokio::select! {
            response = &mut response => {
                let (client, head) = response.unwrap();
                return (client, head, watch);
            }
            Some(()) = carried.next() => {}
        }
    }
}

#[tokio::test]
async fn an_owner_with_all_its_tunnels_leaves_room_for_another() {
    let fixture = Fixture::new();
    let (one, other) = (TunnelShare::default(), TunnelShare::default());
    let (mut open, mut carried) = (Vec::new(), OpenTunnels::new());
    for _ in 0..128 {
        let (client, head, _) = ask(&fixture, &mut carried, &one).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        open.push(client);
    }
    let (mut client, head, watch) = ask(&fixture, &mut carried, &one).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    let mut reason = String::new();
    client.read_to_string(&mut reason).unwrap();
    assert!(reason.starts_with("busy: "), "{reason}");
    let report = watch.report();
    assert_eq!(report.target.map(|(host, _)| host).as_deref(), Some("good.test"));
    assert_eq!(report.end.map(|end| end.as_str()), Some("busy"));
    assert!(ask(&fixture, &mut carried, &other).await.1.starts_with("HTTP/1.1 200 "));
    // The end of a tunnel makes room for another.
    drop(open.pop());
    while !ask(&fixture, &mut carried, &one).await.1.starts_with("HTTP/1.1 200 ") {}
}
