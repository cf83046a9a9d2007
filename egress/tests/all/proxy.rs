//! Requests and tunnels through a proxy: the bytes that the proxy gets, the judge's decisions, and hostile
//! proxies.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use portcullis_confine::LayerStatus;
use portcullis_egress::{
    CancellationToken, DnsConfig, FetchError, RequestLimits, Response, StatusCode, TunnelLimits, TunnelShare,
    TunnelWatch,
};
use rcgen::CertificateParams;
use rustls::{ServerConnection, StreamOwned};

use crate::fixture::{Authority, Client, RecordingJudge, Server, assert_code, loopback, ok, read_head, send};

/// A proxy that works as squid does: it opens tunnels and passes requests on. Every name leads to this machine.
struct ForwardingProxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl ForwardingProxy {
    fn start() -> Self {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let recorded_heads = Arc::clone(&heads);
        let server = Server::start(move |head, stream| {
            recorded_heads.lock().unwrap().push(head.to_owned());
            let target = head.split(' ').nth(1).unwrap();
            let authority = target.trim_start_matches("http://").split('/').next().unwrap();
            let port: u16 = authority.rsplit(':').next().unwrap().parse().unwrap();
            let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            if head.starts_with("CONNECT ") {
                send(stream, b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n");
            } else {
                let (_, path) = target.split_once(authority).unwrap();
                send(&mut server, head.replacen(target, path, 1).as_bytes());
            }
            let (mut client_reader, mut server_writer) =
                (stream.try_clone().unwrap(), server.try_clone().unwrap());
            let up = thread::spawn(move || {
                let _ignored = io::copy(&mut client_reader, &mut server_writer);
                let _ignored = server_writer.shutdown(Shutdown::Write);
            });
            let _ignored = io::copy(&mut server, stream);
            let _ignored = stream.shutdown(Shutdown::Both);
            up.join().unwrap();
        });
        Self { port: server.port, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// The first line of each request.
    fn lines(&self) -> Vec<String> {
        self.heads().iter().map(|head| head.lines().next().unwrap().to_owned()).collect()
    }
}

/// A TLS server with a certificate for this name, which keeps its connections.
fn tls_server(authority: &Authority, name: &str) -> Server {
    let config = authority.issue(&CertificateParams::new(vec![name.to_owned()]).unwrap());
    Server::listen(move |stream, _count| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        while !read_head(&mut stream).is_empty() {
            send(&mut stream, ok("hi").as_bytes());
        }
    })
}

#[tokio::test]
async fn tls_goes_through_a_tunnel_to_the_origin_itself() {
    let (authority, proxy) = (Authority::new(), ForwardingProxy::start());
    let server = tls_server(&authority, "good.test");
    let client = Client::behind_proxy(proxy.port, &[server.port], &authority.pem);
    let judge = Arc::new(RecordingJudge { key: Some("grant"), ..RecordingJudge::default() });
    let url = format!("https://good.test:{}/path?query", server.port);
    for _kept in 0..2 {
        let response = client.get(&url, &judge).await.unwrap();
        assert_eq!((&response.body[..], response.address), (&b"hi"[..], loopback(proxy.port)));
    }
    // Both requests used one tunnel, and the proxy saw nothing of them.
    let authority = format!("good.test:{}", server.port);
    assert_eq!(proxy.heads(), [format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")]);
    // The client did not resolve the name, so the judge got no address.
    assert_eq!(*judge.questions.lock().unwrap(), ["GET /path", "GET /path"]);
}

#[tokio::test]
async fn a_proxy_cannot_answer_for_the_origin() {
    let (authority, proxy) = (Authority::new(), ForwardingProxy::start());
    for server in [tls_server(&authority, "proxy.test"), tls_server(&Authority::new(), "good.test")] {
        let client = Client::behind_proxy(proxy.port, &[server.port], &authority.pem);
        let url = format!("https://good.test:{}/", server.port);
        assert_code(client.get(&url, &Arc::new(RecordingJudge::default())).await, "tls_failed");
    }
}

#[tokio::test]
async fn a_plain_request_names_its_whole_address() {
    let proxy = ForwardingProxy::start();
    let server = Server::answering(ok("hi"));
    let client = Client::behind_proxy(proxy.port, &[server.port], &Authority::new().pem);
    let url = format!("http://plain.test:{}/a%20b?c#d", server.port);
    let response = client.get(&url, &Arc::new(RecordingJudge::default())).await.unwrap();
    assert_eq!((response.status, &response.body[..]), (StatusCode::OK, &b"hi"[..]));
    assert_eq!(response.address, loopback(proxy.port));
    let authority = format!("plain.test:{}", server.port);
    assert_eq!(proxy.lines(), [format!("GET http://{authority}/a%20b?c HTTP/1.1")]);
    assert!(proxy.heads()[0].contains(&format!("\r\nhost: {authority}\r\n")));
}

/// The threads cannot reach a server past the proxy.
#[tokio::test]
async fn only_the_port_of_the_proxy_is_open() {
    let client = Client::behind_proxy(3128, &[443, 8443], &Authority::new().pem);
    let posture = client.egress.posture();
    if *posture.landlock() != LayerStatus::Waived {
        assert_eq!(posture.network(), Some(&[3128].into()), "{posture}");
    }
}

#[tokio::test]
async fn known_addresses_are_judged_before_the_proxy_is_asked() {
    let proxy = ForwardingProxy::start();
    let server = Server::answering(ok("hi"));
    let client = Client::behind_proxy(proxy.port, &[server.port], &Authority::new().pem);
    let refused = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let judge = Arc::new(RecordingJudge { refused, ..RecordingJudge::default() });
    for host in ["127.0.0.1", "0x7f.1", "[::1]", "localhost", "LOCALHOST.", "a.localhost"] {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{}/", server.port);
            assert_code(client.get(&url, &judge).await, "address_private");
        }
    }
    // `localhost` is refused if either of its loopback addresses is refused.
    let judge = Arc::new(RecordingJudge {
        refused: vec![IpAddr::V6(Ipv6Addr::LOCALHOST)],
        ..RecordingJudge::default()
    });
    assert_code(client.get(&format!("http://localhost:{}/", server.port), &judge).await, "address_private");
    assert_eq!((proxy.heads().len(), server.requests()), (0, 0));
}

#[tokio::test]
async fn a_port_that_no_rule_names_is_not_asked_for() {
    let proxy = ForwardingProxy::start();
    let client = Client::behind_proxy(proxy.port, &[443], &Authority::new().pem);
    let judge = Arc::new(RecordingJudge::default());
    assert_code(client.get("https://good.test:8443/", &judge).await, "port_closed");
    assert_code(client.get(&format!("http://good.test:{}/", proxy.port), &judge).await, "port_closed");
    assert!(proxy.heads().is_empty());
}

/// Requests a page through a proxy that answers `CONNECT` in this way. Returns the result, and the bytes that the proxy
/// got after its response.
async fn ask_hostile(response: &[u8], limits: RequestLimits) -> (Result<Response, FetchError>, Vec<u8>) {
    let (sent, received) = std::sync::mpsc::channel();
    let response = response.to_vec();
    let proxy = Server::start(move |_head, stream| {
        send(stream, &response);
        let mut rest = Vec::new();
        let _reset = stream.read_to_end(&mut rest);
        sent.send(rest).unwrap();
    });
    let client = Client::behind_proxy(proxy.port, &[443], &Authority::new().pem);
    let judge = Arc::new(RecordingJudge { limits, ..RecordingJudge::default() });
    let result = client.get("https://good.test/", &judge).await;
    (result, received.recv().unwrap())
}

#[tokio::test]
async fn a_proxy_that_refuses_is_an_error_with_its_status() {
    for status in [100, 101, 302, 400, 403, 407, 429, 502, 503] {
        let response =
            format!("HTTP/1.1 {status} X\r\nContent-Length: 1000000\r\n\r\nthe rest is not awaited");
        let (result, rest) = ask_hostile(response.as_bytes(), RequestLimits::default()).await;
        let error = result.unwrap_err();
        assert_eq!((error.code(), rest.len()), ("proxy_refused", 0), "{status}");
        let text = error.to_string();
        assert!(text.contains(&format!("responds with {status} to a connection to good.test")), "{text}");
        assert_eq!(text.contains("asks for credentials"), status == 407, "{text}");
    }
}

#[tokio::test]
async fn no_tls_begins_behind_a_doubtful_answer() {
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(9000));
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n\x16\x03\x03",
        "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "\x16\x03\x03\x00\x02\r\n",
        "200 OK\r\n\r\n",
        &endless,
    ] {
        let (result, rest) = ask_hostile(response.as_bytes(), RequestLimits::default()).await;
        assert_code(result, "proxy_invalid");
        assert!(rest.is_empty(), "{response:?}");
    }
}

#[tokio::test]
async fn a_proxy_that_does_not_answer_is_left() {
    let limits = RequestLimits { connect_timeout: Duration::from_millis(100), ..RequestLimits::default() };
    for response in ["", "HTTP/1.1 200 OK\r\nVia: 1.1 pro"] {
        let (result, rest) = ask_hostile(response.as_bytes(), limits.clone()).await;
        assert_code(result, "connect_timeout");
        assert!(rest.is_empty());
    }
    let closing_server = Server::start(|_head, _stream| {});
    let client = Client::behind_proxy(closing_server.port, &[443], &Authority::new().pem);
    let result = client.get("https://good.test/", &Arc::new(RecordingJudge::default())).await;
    assert!(matches!(result.unwrap_err().code(), "proxy_invalid" | "proxy_broken"));
}

#[tokio::test]
async fn a_plain_request_is_refused_if_the_proxy_needs_credentials() {
    let proxy = Server::answering("HTTP/1.1 407 X\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n");
    let client = Client::behind_proxy(proxy.port, &[80], &Authority::new().pem);
    let error = client.get("http://plain.test/", &Arc::new(RecordingJudge::default())).await.unwrap_err();
    assert_eq!(error.code(), "proxy_refused");
    assert!(error.to_string().contains("asks for credentials"), "{error}");
}

#[tokio::test]
async fn a_proxy_that_is_gone_is_an_error() {
    let closed_port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let client = Client::behind_proxy(closed_port, &[443], &Authority::new().pem);
    let result = client.get("https://good.test/", &Arc::new(RecordingJudge::default())).await;
    assert_code(result, "connect_failed");
}

/// The tunnel of a confined program goes through a tunnel of the proxy.
#[tokio::test]
async fn a_tunnel_goes_through_the_proxy() {
    let (authority, proxy) = (Authority::new(), ForwardingProxy::start());
    let server = tls_server(&authority, "good.test");
    let client = Client::behind_proxy(proxy.port, &[server.port], &authority.pem);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let ours = listener.accept().unwrap().0;
    ours.set_nonblocking(true).unwrap();
    let (pem, port) = (authority.pem.clone(), server.port);
    let program = thread::spawn(move || {
        let mut stream = theirs;
        send(&mut stream, format!("CONNECT good.test:{port} HTTP/1.1\r\n\r\n").as_bytes());
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 200 "));
        let connection = crate::tunnels::client_tls(&pem, "good.test");
        let mut stream = StreamOwned::new(connection, stream);
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut response = [0; 40];
        stream.read_exact(&mut response).unwrap();
        String::from_utf8(response.to_vec()).unwrap()
    });
    let watch = TunnelWatch::default();
    let (limits, cancel) = (TunnelLimits::default(), CancellationToken::new());
    let share = TunnelShare::default();
    client
        .egress
        .tunnel(Arc::new(RecordingJudge::default()), ours, limits, share, watch.clone(), cancel)
        .await;
    assert!(program.join().unwrap().ends_with("\r\n\r\nhi"));
    assert_eq!(proxy.lines(), [format!("CONNECT good.test:{port} HTTP/1.1")]);
    assert_eq!(watch.report().address, Some(loopback(proxy.port)));
}

/// Only the proxy's own name is resolved, and its address is not judged.
#[tokio::test]
async fn the_name_of_the_proxy_is_resolved_and_not_judged() {
    let proxy = ForwardingProxy::start();
    let server = Server::answering(ok("hi"));
    let names =
        DnsConfig { hosts: "127.0.0.1 proxy.test".to_owned(), ..DnsConfig::with_servers(vec![loopback(9)]) };
    let client = Client::behind_named_proxy("proxy.test", proxy.port, &[server.port], names);
    let posture = client.egress.posture();
    if *posture.landlock() != LayerStatus::Waived {
        assert_eq!(posture.network(), Some(&[9, proxy.port].into()), "{posture}");
    }
    let judge = Arc::new(RecordingJudge {
        refused: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        ..RecordingJudge::default()
    });
    let response = client.get(&format!("http://plain.test:{}/", server.port), &judge).await.unwrap();
    assert_eq!(&response.body[..], b"hi");
}
