//! Servers whose certificate does not hold.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::{
    net::TcpStream,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use portcullis_egress::{FetchError, Limits, NameSettings, Response};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::world::{
    Asked, Authority, Client, Server, assert_code, ok, read_head, redirect, send, server_config,
};

fn params(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).unwrap()
}

/// A TLS server with this answer. `ends_well`: whether it marks the end of its data.
fn serve(config: Arc<ServerConfig>, answer: String, ends_well: bool) -> Server {
    Server::listen(move |stream: TcpStream, _count: &AtomicUsize| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        if !read_head(&mut stream).is_empty() {
            send(&mut stream, answer.as_bytes());
            if ends_well {
                stream.conn.send_close_notify();
                let _gone = stream.conn.complete_io(&mut stream.sock);
            }
        }
    })
}

async fn get(authority: &Authority, server: &Server) -> Result<Response, FetchError> {
    let names =
        NameSettings { hosts: "127.0.0.1 good.test".to_owned(), ..NameSettings::of_servers(Vec::new()) };
    let client = Client::with(&[server.port], names, &authority.pem);
    client.get(&format!("https://good.test:{}/", server.port), &Arc::new(Asked::default())).await
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
    let own = params("good.test").self_signed(&key).unwrap();
    for config in [server_config(own.der().clone(), &key), Authority::new().issue(&params("good.test"))] {
        let server = serve(config, ok("hi"), true);
        assert_code(get(&Authority::new(), &server).await, "tls_failed");
    }
    // No TLS at all.
    assert_code(get(&Authority::new(), &Server::answering(ok("hi"))).await, "tls_failed");
}

#[tokio::test]
async fn https_does_not_fall_to_http() {
    let authority = Authority::new();
    let plain = Server::answering(ok("plain"));
    let server = serve(authority.issue(&params("good.test")), redirect(&plain.url("/")), true);
    assert_code(get(&authority, &server).await, "redirect_downgrade");
    assert_eq!(plain.requests(), 0);
}

/// Without a length, only the end mark of TLS tells the end of a body from an attacker's cut.
#[tokio::test]
async fn a_body_cut_below_tls_is_noticed() {
    let authority = Authority::new();
    let answer = "HTTP/1.1 200 OK\r\n\r\nhalf of it";
    let server = serve(authority.issue(&params("good.test")), answer.to_owned(), true);
    assert_eq!(&get(&authority, &server).await.unwrap().body[..], b"half of it");
    let server = serve(authority.issue(&params("good.test")), answer.to_owned(), false);
    assert_code(get(&authority, &server).await, "response_truncated");
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_left() {
    let server = Server::listen(|mut stream, _count| {
        let _closed = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let limits = Limits { connect: Duration::from_millis(100), ..Limits::default() };
    let judge = Arc::new(Asked { limits, ..Asked::default() });
    let url = format!("https://127.0.0.1:{}/", server.port);
    assert_code(Client::new(&[server.port]).get(&url, &judge).await, "connect_timeout");
}
