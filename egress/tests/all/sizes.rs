//! Headers and bodies without end, and bodies that grow when they are unpacked.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::{io::Write as _, sync::Arc};

use flate2::{Compression, write::GzEncoder};
use portcullis_egress::{ContentCoding, Limits};

use crate::world::{Asked, Client, Server, ask, assert_code, send};

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    let body = encoder.finish().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

#[tokio::test]
async fn a_compressed_body_is_unpacked_and_counted() {
    let response = ask(zipped(&[b'a'; 10_000]), Limits::default()).await.unwrap();
    assert_eq!((response.body.len(), response.coding), (10_000, ContentCoding::Gzip));
    assert!(response.wire_bytes < 100, "{}", response.wire_bytes);
}

#[tokio::test]
async fn a_compression_bomb_is_refused() {
    let bomb = zipped(&vec![0; 64 << 20]);
    assert!(bomb.len() < 128 << 10);
    assert_code(ask(bomb, Limits::default()).await, "decoded_too_large");
}

#[tokio::test]
async fn a_coding_that_was_not_offered_is_refused() {
    for coding in ["deflate", "zstd", "gzip, gzip"] {
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\n\r\nhi");
        assert_code(ask(answer, Limits::default()).await, "coding_unsupported");
    }
    let damaged = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\nplain";
    assert_code(ask(damaged, Limits::default()).await, "coding_invalid");
}

#[tokio::test]
async fn headers_without_end_are_refused() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
    assert_code(ask(many, Limits::default()).await, "headers_too_large");
    let server = Server::start(|_head, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\nx: ");
        while stream.write_all(&[b'a'; 4096]).is_ok() {}
    });
    let result = Client::new(&[server.port]).get(&server.url("/"), &Arc::new(Asked::default())).await;
    assert_code(result, "headers_too_large");
}

#[tokio::test]
async fn a_body_without_end_is_refused() {
    for head in ["\r\n\r\n", "\r\ntransfer-encoding: chunked\r\n\r\n"] {
        let server = Server::start(move |_head, stream| {
            send(stream, format!("HTTP/1.1 200 OK{head}").as_bytes());
            let piece = format!("1000\r\n{}\r\n", "a".repeat(0x1000));
            while stream.write_all(piece.as_bytes()).is_ok() {}
        });
        let limits = Limits { wire_bytes: 256 << 10, ..Limits::default() };
        let judge = Arc::new(Asked { limits, ..Asked::default() });
        let result = Client::new(&[server.port]).get(&server.url("/"), &judge).await;
        assert_code(result, "response_too_large");
    }
}

#[tokio::test]
async fn an_announced_size_is_enough_to_refuse() {
    // The body never comes.
    let server = Server::start(|_head, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n");
        let _closed = std::io::copy(stream, &mut std::io::sink());
    });
    let result = Client::new(&[server.port]).get(&server.url("/"), &Arc::new(Asked::default())).await;
    assert_code(result, "response_too_large");
}
