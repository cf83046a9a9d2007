//! TLS: certificates, cut bodies, the offered protocols, and weak servers.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{Arc, atomic::AtomicUsize, mpsc},
    time::Duration,
};

use portcullis_egress::{DnsConfig, FetchError, RequestLimits, Response};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::fixture::{
    Authority, Client, RecordingJudge, Server, assert_code, ok, read_head, redirect, send, server_config,
};

fn params(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).unwrap()
}

/// A TLS server with this response. `ends_well` says whether the server marks the end of its data.
fn serve(config: Arc<ServerConfig>, response: String, ends_well: bool) -> Server {
    Server::listen(move |stream: TcpStream, _count: &AtomicUsize| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        if !read_head(&mut stream).is_empty() {
            send(&mut stream, response.as_bytes());
            if ends_well {
                stream.conn.send_close_notify();
                let _ignored = stream.conn.complete_io(&mut stream.sock);
            }
        }
    })
}

async fn get(authority: &Authority, server: &Server) -> Result<Response, FetchError> {
    get_trusting(&authority.pem, server).await
}

async fn get_trusting(pem: &str, server: &Server) -> Result<Response, FetchError> {
    let names = DnsConfig { hosts: "127.0.0.1 good.test".to_owned(), ..DnsConfig::with_servers(Vec::new()) };
    let client = Client::with_settings(&[server.port], names, pem);
    client.get(&format!("https://good.test:{}/", server.port), &Arc::new(RecordingJudge::default())).await
}

#[tokio::test]
async fn a_trusted_certificate_of_the_name_is_taken() {
    let authority = Authority::new();
    let server = serve(authority.issue(&params("good.test")), ok("hi"), true);
    assert_eq!(&get(&authority, &server).await.unwrap().body[..], b"hi");
}

#[tokio::test]
async fn another_name_in_the_certificate_is_refused() {
    let authority = Authority::new();
    for name in ["other.test", "*.good.test", "127.0.0.1"] {
        let server = serve(authority.issue(&params(name)), ok("hi"), true);
        assert_code(get(&authority, &server).await, "tls_failed");
    }
}

#[tokio::test]
async fn a_certificate_out_of_its_time_is_refused() {
    let authority = Authority::new();
    let mut past = params("good.test");
    (past.not_before, past.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
    let mut future = params("good.test");
    (future.not_before, future.not_after) = (date_time_ymd(4000, 1, 1), date_time_ymd(4001, 1, 1));
    for params in [past, future] {
        let server = serve(authority.issue(&params), ok("hi"), true);
        assert_code(get(&authority, &server).await, "tls_failed");
    }
}

#[tokio::test]
async fn an_untrusted_certificate_is_refused() {
    let key = KeyPair::generate().unwrap();
    let self_signed = params("good.test").self_signed(&key).unwrap();
    for config in
        [server_config(self_signed.der().clone(), &key), Authority::new().issue(&params("good.test"))]
    {
        let server = serve(config, ok("hi"), true);
        assert_code(get(&Authority::new(), &server).await, "tls_failed");
    }
    // A server without TLS.
    assert_code(get(&Authority::new(), &Server::answering(ok("hi"))).await, "tls_failed");
}

#[tokio::test]
async fn https_does_not_fall_to_http() {
    let authority = Authority::new();
    let plain_server = Server::answering(ok("plain"));
    let server = serve(authority.issue(&params("good.test")), redirect(&plain_server.url("/")), true);
    assert_code(get(&authority, &server).await, "redirect_downgrade");
    assert_eq!(plain_server.requests(), 0);
}

/// In a body without a length, only the end mark of TLS distinguishes the end from an attacker's cut.
#[tokio::test]
async fn a_body_cut_below_tls_is_noticed() {
    let authority = Authority::new();
    let response = "HTTP/1.1 200 OK\r\n\r\nhalf of it";
    let server = serve(authority.issue(&params("good.test")), response.to_owned(), true);
    assert_eq!(&get(&authority, &server).await.unwrap().body[..], b"half of it");
    let server = serve(authority.issue(&params("good.test")), response.to_owned(), false);
    assert_code(get(&authority, &server).await, "response_truncated");
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_left() {
    let server = Server::listen(|mut stream, _count| {
        let _closed = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let limits = RequestLimits { connect_timeout: Duration::from_millis(100), ..RequestLimits::default() };
    let judge = Arc::new(RecordingJudge { limits, ..RecordingJudge::default() });
    let url = format!("https://127.0.0.1:{}/", server.port);
    assert_code(Client::new(&[server.port]).get(&url, &judge).await, "connect_timeout");
}

/// The host of the URL is the server name in the TLS hello, the host in the request, and the name in the certificate.
#[tokio::test]
async fn the_server_is_asked_for_the_host_of_the_url() {
    let (names, seen) = mpsc::channel();
    let authority = Authority::new();
    let config = authority.issue(&params("good.test"));
    let server = Server::listen(move |stream, _count| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        let head = read_head(&mut stream);
        if !head.is_empty() {
            names.send((stream.conn.server_name().map(str::to_owned), head)).unwrap();
            send(&mut stream, ok("hi").as_bytes());
        }
    });
    get(&authority, &server).await.unwrap();
    let (name, head) = seen.recv().unwrap();
    assert_eq!(name.as_deref(), Some("good.test"));
    assert!(head.contains(&format!("\r\nhost: good.test:{}\r\n", server.port)), "{head}");
}

/// A server that speaks only HTTP/2, which the client does not offer.
#[tokio::test]
async fn a_server_with_http_2_only_is_refused_with_the_reason() {
    let authority = Authority::new();
    let mut config = Arc::into_inner(authority.issue(&params("good.test"))).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let server = serve(Arc::new(config), ok("hi"), true);
    let error = get(&authority, &server).await.unwrap_err();
    let FetchError::TlsFailed { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.to_string().contains("NoApplicationProtocol"), "{source}");
}

#[tokio::test]
async fn http_1_is_the_only_protocol_that_is_offered() {
    let (protocols, seen) = mpsc::channel();
    let authority = Authority::new();
    let mut config = Arc::into_inner(authority.issue(&params("good.test"))).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let config = Arc::new(config);
    let server = Server::listen(move |stream, _count| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        if !read_head(&mut stream).is_empty() {
            protocols.send(stream.conn.alpn_protocol().map(<[u8]>::to_vec)).unwrap();
            send(&mut stream, ok("hi").as_bytes());
        }
    });
    get(&authority, &server).await.unwrap();
    // The server prefers HTTP/2.
    assert_eq!(seen.recv().unwrap().as_deref(), Some(&b"http/1.1"[..]));
}

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    const NO_FLAGS: u8 = 0;
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, NO_FLAGS], &stream.to_be_bytes(), payload].concat()
}

/// Rapid reset: an endless flood of frames, all of which a client of HTTP/2 would have to process.
#[tokio::test]
async fn a_flood_of_http_2_frames_is_refused_at_its_first_byte() {
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    let (sender, ended) = mpsc::channel();
    let authority = Authority::new();
    let config = authority.issue(&params("good.test"));
    let server = Server::listen(move |stream, _count| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        if read_head(&mut stream).is_empty() {
            return;
        }
        let resets = (1..1000).flat_map(|stream| frame(RST_STREAM, stream, &[0, 0, 0, 8]));
        let flood: Vec<u8> = frame(SETTINGS, 0, &[]).into_iter().chain(resets).collect();
        while stream.write_all(&flood).and_then(|()| stream.flush()).is_ok() {}
        sender.send(()).unwrap();
    });
    assert_code(get(&authority, &server).await, "response_invalid");
    // The client has closed the connection.
    ended.recv().unwrap();
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

/// The server certificates in `weak/` were made with `openssl ca` for the years 2000 to 2999, with the same key and
/// name. They are signed with SHA-256 by an authority of 2048 bits, with SHA-1 by that authority, and with SHA-256 by
/// an authority of 1024 bits.
#[tokio::test]
async fn a_weak_signature_is_refused() {
    let (good, small) = (include_str!("weak/ca.pem"), include_str!("weak/small_ca.pem"));
    for (authority, leaf, is_taken) in [
        (good, include_str!("weak/by_sha256.pem"), true),
        (good, include_str!("weak/by_sha1.pem"), false),
        (small, include_str!("weak/by_small_ca.pem"), false),
    ] {
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("weak/key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(certificates(leaf), key)
            .unwrap();
        let server = serve(Arc::new(config), ok("hi"), true);
        let result = get_trusting(authority, &server).await;
        if is_taken {
            assert_eq!(&result.unwrap().body[..], b"hi");
        } else {
            assert_code(result, "tls_failed");
        }
    }
}

/// A `ServerHello` (RFC 5246, 7.4.1.3) that chooses this version and cipher suite.
fn server_hello(version: [u8; 2], suite: [u8; 2]) -> Vec<u8> {
    const NO_SESSION: u8 = 0;
    const NO_COMPRESSION: u8 = 0;
    let body = [&version[..], &[7; 32], &[NO_SESSION], &suite, &[NO_COMPRESSION]].concat();
    let length = |bytes: usize| u16::try_from(bytes).unwrap().to_be_bytes();
    let message = [&[2, 0][..], &length(body.len()), &body].concat();
    [&[22][..], &version, &length(message.len()), &message].concat()
}

#[tokio::test]
async fn an_old_version_or_a_weak_cipher_is_refused() {
    const ECDHE_AES_CBC: [u8; 2] = [0xc0, 0x13];
    for (version, suite) in [
        ([3, 0], [0x00, 0x0a]),
        ([3, 1], ECDHE_AES_CBC),
        ([3, 2], ECDHE_AES_CBC),
        ([3, 3], ECDHE_AES_CBC),
        // RSA key exchange, RC4, an export cipher, and no cipher.
        ([3, 3], [0x00, 0x2f]),
        ([3, 3], [0x00, 0x05]),
        ([3, 3], [0x00, 0x03]),
        ([3, 3], [0x00, 0x00]),
    ] {
        let server = Server::listen(move |mut stream, _count| {
            // Only the client's hello has bytes. A canary's attempt sends nothing.
            if stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                send(&mut stream, &server_hello(version, suite));
                let _closed = std::io::copy(&mut stream, &mut std::io::sink());
            }
        });
        assert_code(get(&Authority::new(), &server).await, "tls_failed");
    }
}
