//! Responses whose length is stated twice, wrongly, or not at all.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{io::Write as _, sync::Arc, time::Duration};

use portcullis_egress::RequestLimits;

use crate::fixture::{Client, RecordingJudge, Server, ask, assert_code, ok};

async fn body_of(response: &str) -> Result<String, &'static str> {
    let response = ask(response, RequestLimits::default()).await.map_err(|error| error.code())?;
    Ok(String::from_utf8(response.body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_body_ends_by_length_chunks_or_connection() {
    assert_eq!(body_of("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap(), "hi");
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n";
    assert_eq!(body_of(chunks).await.unwrap(), "hi");
    assert_eq!(body_of("HTTP/1.1 200 OK\r\n\r\nhi").await.unwrap(), "hi");
    assert_eq!(body_of("HTTP/1.1 204 No Content\r\n\r\n").await.unwrap(), "");
}

#[tokio::test]
async fn a_second_length_is_refused() {
    for (headers, code) in [
        ("content-length: 2\r\ncontent-length: 3", "response_invalid"),
        ("content-length: 2, 3", "response_invalid"),
        ("content-length: -2", "response_invalid"),
        ("content-length: +2", "response_invalid"),
        ("content-length: 0x2", "response_invalid"),
        ("content-length: 2 2", "response_invalid"),
        ("content-length:", "response_invalid"),
        ("content-length: 99999999999999999999", "response_invalid"),
        ("content-length: 2, 2", "response_framing"),
        ("content-length: 2\r\nContent-Length: 2", "response_framing"),
        ("content-length: 2\r\ncontent-length: 2", "response_framing"),
        ("content-length: 2\r\ntransfer-encoding: chunked", "response_framing"),
        ("transfer-encoding: gzip, chunked", "response_framing"),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked", "response_framing"),
        ("transfer-encoding: chunked, identity", "response_framing"),
        ("transfer-encoding: identity", "response_framing"),
        ("transfer-encoding: xchunked", "response_framing"),
        ("transfer-encoding: \"chunked\"", "response_framing"),
        ("transfer-encoding: chunked;a=b", "response_framing"),
        ("transfer-encoding:\x0bchunked", "response_invalid"),
    ] {
        let response = format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
        assert_eq!(body_of(&response).await, Err(code), "{headers}");
    }
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_cut_off() {
    let short_body = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhi";
    assert_eq!(body_of(short_body).await, Err("response_truncated"));
}

#[tokio::test]
async fn bytes_after_the_length_are_not_read() {
    assert_eq!(body_of("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhidden").await.unwrap(), "hi");
}

#[tokio::test]
async fn faulty_chunks_are_refused() {
    for (chunks, code) in [
        ("zz\r\nhi\r\n0\r\n\r\n", "response_invalid"),
        ("ffffffffffffffffff\r\nhi\r\n", "response_invalid"),
        ("2\r\nhi!!0\r\n\r\n", "response_invalid"),
        ("+2\r\nhi\r\n0\r\n\r\n", "response_invalid"),
        ("-2\r\nhi\r\n0\r\n\r\n", "response_invalid"),
        ("0x2\r\nhi\r\n0\r\n\r\n", "response_invalid"),
        ("2;a\nb\r\nhi\r\n0\r\n\r\n", "response_invalid"),
        ("2\r\nhi\r\n0\r\n", "response_truncated"),
        ("2\r\nhi\r\n", "response_truncated"),
        ("5\r\nhi", "response_truncated"),
        ("", "response_truncated"),
    ] {
        let response = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
        assert_eq!(body_of(&response).await, Err(code), "{chunks:?}");
    }
}

#[tokio::test]
async fn other_protocols_are_not_a_response() {
    for response in ["SSH-2.0-OpenSSH\r\n", "HTTP/2 200\r\n\r\n", "hello\r\n\r\n"] {
        assert_eq!(body_of(response).await, Err("response_invalid"), "{response:?}");
    }
    let upgrade = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    assert_eq!(body_of(upgrade).await, Err("response_framing"));
    assert_code(ask("", RequestLimits::default()).await, "response_truncated");
}

#[tokio::test]
async fn headers_that_proxies_read_differently_are_refused() {
    for response in [
        "HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nx: a\r\n content-length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\n content-length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nx: a\rcontent-length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\n: 2\r\n\r\nhi",
        "HTTP/1.1 2000 OK\r\n\r\nhi",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    ] {
        assert_eq!(body_of(response).await, Err("response_invalid"), "{response:?}");
    }
}

#[tokio::test]
async fn a_status_without_a_body_has_none() {
    for status in ["204 No Content", "304 Not Modified"] {
        let response = format!("HTTP/1.1 {status}\r\ncontent-length: 6\r\n\r\nhidden");
        assert_eq!(body_of(&response).await.unwrap(), "", "{status}");
    }
}

#[tokio::test]
async fn interim_responses_are_skipped_and_have_no_body() {
    let hints = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    assert_eq!(body_of(&format!("{hints}HTTP/1.1 200 OK\r\n\r\nhi")).await.unwrap(), "hi");
    let with_body = "HTTP/1.1 103 Early Hints\r\ncontent-length: 6\r\n\r\nhiddenHTTP/1.1 200 OK\r\n\r\nhi";
    assert_eq!(body_of(with_body).await, Err("response_invalid"));
}

#[tokio::test]
async fn interim_responses_without_end_stop_at_the_deadline() {
    let endless = Server::start(|_head, stream| {
        let interim_responses = "HTTP/1.1 102 Processing\r\n\r\n".repeat(1000);
        while stream.write_all(interim_responses.as_bytes()).is_ok() {}
    });
    let fast_server = Server::answering(ok("hi"));
    let client = Client::new(&[endless.port, fast_server.port]);
    let limits = RequestLimits { first_byte_timeout: Duration::from_millis(500), ..RequestLimits::default() };
    let judge = Arc::new(RecordingJudge { limits, ..RecordingJudge::default() });
    let (endless, quick) = (endless.url("/"), fast_server.url("/"));
    // Other requests on the thread continue.
    let (flooded_result, other_result) =
        tokio::join!(client.get(&endless, &judge), client.get(&quick, &judge));
    assert_code(flooded_result, "first_byte_timeout");
    assert_eq!(&other_result.unwrap().body[..], b"hi");
}
