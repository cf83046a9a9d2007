//! Endless headers and bodies, and bodies that grow when they are decompressed.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{io::Write as _, sync::Arc};

use flate2::{Compression, write::GzEncoder};
use portcullis_egress::{ContentCoding, RequestLimits};

use crate::fixture::{Client, RecordingJudge, Server, ask, assert_code, send};

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    let body = encoder.finish().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

#[tokio::test]
async fn a_compressed_body_is_unpacked_and_counted() {
    let response = ask(zipped(&[b'a'; 10_000]), RequestLimits::default()).await.unwrap();
    assert_eq!((response.body.len(), response.coding), (10_000, ContentCoding::Gzip));
    assert!(response.wire_bytes < 100, "{}", response.wire_bytes);
}

#[tokio::test]
async fn a_compression_bomb_is_refused() {
    let bomb = zipped(&vec![0; 64 << 20]);
    assert!(bomb.len() < 128 << 10);
    assert_code(ask(bomb, RequestLimits::default()).await, "decoded_too_large");
}

/// 64 MiB of zeros in 53 bytes, as `zlib.brotliCompressSync` of Node.js writes them.
const BROTLI_BOMB: &[u8] = &[
    0xcf, 0xff, 0xff, 0x7f, 0xf8, 0x27, 0x00, 0xe2, 0xb1, 0x40, 0x20, 0xf7, 0xfe, 0x9f, 0xff, 0xff, 0xff,
    0xf0, 0x4f, 0x00, 0xc4, 0x61, 0x01, 0x80, 0xee, 0xfd, 0x3f, 0xff, 0xff, 0xff, 0xe1, 0x9f, 0x00, 0x88,
    0xc3, 0x22, 0x00, 0xdd, 0xfb, 0xff, 0xfc, 0xff, 0xff, 0xc7, 0x3f, 0x01, 0x10, 0x87, 0x05, 0x00, 0xba,
    0xf7, 0xff,
];

fn brotli(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_brotli_bomb_is_refused() {
    assert_code(ask(brotli(BROTLI_BOMB), RequestLimits::default()).await, "decoded_too_large");
    let wide_limits = RequestLimits { response_bytes: 64 << 20, ..RequestLimits::default() };
    assert_eq!(ask(brotli(BROTLI_BOMB), wide_limits).await.unwrap().body.len(), 64 << 20);
}

/// The decoder allocates the whole window of a brotli stream before it decodes a byte.
#[tokio::test]
async fn a_brotli_window_beyond_the_standard_is_refused() {
    // "hello" with a window of 1 GiB.
    let large = [0x11, 0x1e, 0x08, 0x00, 0x02, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x03];
    assert_code(ask(brotli(&large), RequestLimits::default()).await, "coding_invalid");
    // The first byte comes in a separate chunk.
    let chunks = [b"1\r\n\x11\r\na\r\n", &large[1..], b"\r\n0\r\n\r\n"].concat();
    let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_code(ask([&head[..], &chunks].concat(), RequestLimits::default()).await, "coding_invalid");
}

#[tokio::test]
async fn bytes_after_a_compressed_body_are_refused() {
    let hello = [0x0b, 0x02, 0x80, b'h', b'e', b'l', b'l', b'o', 0x03];
    assert_eq!(&ask(brotli(&hello), RequestLimits::default()).await.unwrap().body[..], b"hello");
    let more = [&hello[..], b"hidden"].concat();
    assert_code(ask(brotli(&more), RequestLimits::default()).await, "coding_invalid");
}

#[tokio::test]
async fn trailers_and_extensions_without_end_are_refused() {
    for (chunk, more) in [("0\r\n", "x: a\r\n"), ("0\r\nx: ", "aaaaaaaa"), ("1;", "a=b;")] {
        let server = Server::start(move |_head, stream| {
            let head = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunk}");
            send(stream, head.as_bytes());
            let more = more.repeat(1000);
            while stream.write_all(more.as_bytes()).is_ok() {}
        });
        // With the default limits, a limit on sizes ends the request before any deadline does.
        let result =
            Client::new(&[server.port]).get(&server.url("/"), &Arc::new(RecordingJudge::default())).await;
        let code = result.map(|_| ()).unwrap_err().code();
        assert!(["response_invalid", "headers_too_large"].contains(&code), "{chunk} {more}: {code}");
    }
}

#[tokio::test]
async fn a_coding_that_was_not_offered_is_refused() {
    for coding in
        ["deflate", "zstd", "gzip, gzip", "br, gzip", "identity, br", "gzip\r\ncontent-encoding: br"]
    {
        let response = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\n\r\nhi");
        assert_code(ask(response, RequestLimits::default()).await, "coding_unsupported");
    }
    let damaged = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\nplain";
    assert_code(ask(damaged, RequestLimits::default()).await, "coding_invalid");
}

#[tokio::test]
async fn headers_without_end_are_refused() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
    assert_code(ask(many, RequestLimits::default()).await, "headers_too_large");
    let server = Server::start(|_head, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\nx: ");
        while stream.write_all(&[b'a'; 4096]).is_ok() {}
    });
    let result =
        Client::new(&[server.port]).get(&server.url("/"), &Arc::new(RecordingJudge::default())).await;
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
        let limits = RequestLimits { wire_bytes: 256 << 10, ..RequestLimits::default() };
        let judge = Arc::new(RecordingJudge { limits, ..RecordingJudge::default() });
        let result = Client::new(&[server.port]).get(&server.url("/"), &judge).await;
        assert_code(result, "response_too_large");
    }
}

#[tokio::test]
async fn an_announced_size_is_enough_to_refuse() {
    // The server never sends the body.
    let server = Server::start(|_head, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n");
        let _closed = std::io::copy(stream, &mut std::io::sink());
    });
    let result =
        Client::new(&[server.port]).get(&server.url("/"), &Arc::new(RecordingJudge::default())).await;
    assert_code(result, "response_too_large");
}
