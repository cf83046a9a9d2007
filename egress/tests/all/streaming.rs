//! Responses whose bodies are read while the server sends them.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    sync::{Arc, Mutex, atomic::Ordering, mpsc},
    time::Duration,
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use flate2::{Compression, write::GzEncoder};
use portcullis_egress::{
    CancellationToken, Credential, FetchError, HeaderAffixes, HeaderValue, Request, RequestLimits,
    SecretValue, StatusCode, StreamedResponse,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::fixture::{Client, RecordingJudge, Server, assert_code, ok, read_head, redirect, send};

/// A server that sends the first part with its head, and each further part on a signal of the test. After the last part
/// it waits until the client closes the connection, and reports that.
struct SteppedServer {
    server: Server,
    go: mpsc::Sender<()>,
    closed: UnboundedReceiver<()>,
}

impl SteppedServer {
    fn with_parts(headers: &'static str, parts: Vec<Vec<u8>>) -> Self {
        let (go, may_go) = mpsc::channel();
        let may_go = Mutex::new(may_go);
        let (sender, closed) = unbounded_channel();
        let server = Server::start(move |_head, stream| {
            let head = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n{headers}\r\n");
            send(stream, head.as_bytes());
            for (number, part) in parts.iter().enumerate() {
                if number > 0 && may_go.lock().unwrap().recv().is_err() {
                    break;
                }
                send(stream, &[format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
            }
            wait_until_closed(stream);
            // If the test has ended, the receiver is gone.
            let _over = sender.send(());
        });
        Self { server, go, closed }
    }

    /// A server that sends these texts. An empty text is the end of the body.
    fn with_texts(parts: &[&str]) -> Self {
        Self::with_parts("", parts.iter().map(|part| part.as_bytes().to_vec()).collect())
    }

    async fn open(&self, client: &Client, judge: &Arc<RecordingJudge>) -> StreamedResponse {
        open(client, &self.server.url("/"), judge).await.unwrap()
    }
}

fn wait_until_closed(stream: &mut TcpStream) {
    let _reset = stream.read_to_end(&mut Vec::new());
}

fn judge() -> Arc<RecordingJudge> {
    Arc::new(RecordingJudge::default())
}

fn judge_with_limits(limits: RequestLimits) -> Arc<RecordingJudge> {
    Arc::new(RecordingJudge { limits, ..RecordingJudge::default() })
}

fn credential(value: &str) -> Credential {
    let value = SecretValue::new(value.as_bytes().to_vec()).unwrap();
    Credential::new("test", &value, "x-key", HeaderAffixes::default()).unwrap()
}

async fn open(
    client: &Client,
    url: &str,
    judge: &Arc<RecordingJudge>,
) -> Result<StreamedResponse, FetchError> {
    let request = Request::get(url.parse().unwrap());
    client.egress.stream(Arc::<RecordingJudge>::clone(judge), request, CancellationToken::new()).await
}

async fn read_piece(response: &mut StreamedResponse) -> String {
    String::from_utf8(response.next().await.unwrap().expect("a piece").to_vec()).unwrap()
}

/// Reads the rest of a body. Returns the bytes, and the error if the body broke off.
async fn read_rest(response: &mut StreamedResponse) -> (Vec<u8>, Result<(), FetchError>) {
    let mut body = Vec::new();
    loop {
        match response.next().await {
            Ok(Some(piece)) => {
                assert!((1..=64 << 10).contains(&piece.len()), "{}", piece.len());
                body.extend_from_slice(&piece);
            }
            Ok(None) => return (body, Ok(())),
            Err(error) => return (body, Err(error)),
        }
    }
}

#[tokio::test]
async fn a_piece_comes_while_the_server_has_more() {
    let in_turn =
        SteppedServer::with_parts("x-one: two\r\n", [&b"one"[..], b"two", b""].map(<[u8]>::to_vec).into());
    let client = Client::new(&[in_turn.server.port]);
    let mut response = in_turn.open(&client, &judge()).await;
    assert_eq!((response.status, response.headers["x-one"].as_bytes()), (StatusCode::OK, &b"two"[..]));
    // The server sends no second part before the first one is read.
    assert_eq!(read_piece(&mut response).await, "one");
    in_turn.go.send(()).unwrap();
    assert_eq!(read_piece(&mut response).await, "two");
    in_turn.go.send(()).unwrap();
    assert_eq!(response.next().await.unwrap(), None);
    assert_eq!(response.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_compressed_piece_comes_while_the_server_has_more() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let mut parts = Vec::new();
    for line in ["one\n", "two\n"] {
        encoder.write_all(line.as_bytes()).unwrap();
        encoder.flush().unwrap();
        parts.push(std::mem::take(encoder.get_mut()));
    }
    parts.extend([encoder.finish().unwrap(), Vec::new()]);
    let gzip = SteppedServer::with_parts("content-encoding: gzip\r\n", parts);
    // A block without compression, then the end of the stream.
    let parts = [b"\x0b\x02\x80hello".as_slice(), b"\x03", b""];
    let brotli = SteppedServer::with_parts("content-encoding: br\r\n", parts.map(<[u8]>::to_vec).into());
    let client = Client::new(&[gzip.server.port, brotli.server.port]);

    let mut response = gzip.open(&client, &judge()).await;
    assert_eq!(read_piece(&mut response).await, "one\n");
    gzip.go.send(()).unwrap();
    assert_eq!(read_piece(&mut response).await, "two\n");
    gzip.go.send(()).unwrap();
    gzip.go.send(()).unwrap();
    assert_eq!(response.next().await.unwrap(), None);

    let mut response = brotli.open(&client, &judge()).await;
    assert_eq!(read_piece(&mut response).await, "hello");
    brotli.go.send(()).unwrap();
    brotli.go.send(()).unwrap();
    assert_eq!(response.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_body_without_end_stops_at_its_limit() {
    let (sender, mut ended) = unbounded_channel();
    let server = Server::start(move |_head, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'a'; 1000]).is_ok() {}
        sender.send(()).unwrap();
    });
    let client = Client::new(&[server.port]);
    let limits = RequestLimits { wire_bytes: 1 << 20, ..RequestLimits::default() };
    let mut response = open(&client, &server.url("/"), &judge_with_limits(limits)).await.unwrap();
    let (body, end) = read_rest(&mut response).await;
    assert_eq!(end.unwrap_err().code(), "response_too_large");
    assert!(body.len() <= 1 << 20, "{}", body.len());
    // The connection is closed although the test still holds the response.
    ended.recv().await.unwrap();
    // After an error, a further read is an error too, and never an end.
    response.next().await.unwrap_err();
}

/// 64 MiB of zeros, as `zlib.brotliCompressSync` of Node.js writes them.
const BROTLI_BOMB: &[u8] = &[
    0xcf, 0xff, 0xff, 0x7f, 0xf8, 0x27, 0x00, 0xe2, 0xb1, 0x40, 0x20, 0xf7, 0xfe, 0x9f, 0xff, 0xff, 0xff,
    0xf0, 0x4f, 0x00, 0xc4, 0x61, 0x01, 0x80, 0xee, 0xfd, 0x3f, 0xff, 0xff, 0xff, 0xe1, 0x9f, 0x00, 0x88,
    0xc3, 0x22, 0x00, 0xdd, 0xfb, 0xff, 0xfc, 0xff, 0xff, 0xc7, 0x3f, 0x01, 0x10, 0x87, 0x05, 0x00, 0xba,
    0xf7, 0xff,
];

fn bombs() -> [(&'static str, Vec<u8>); 2] {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![0; 64 << 20]).unwrap();
    [("gzip", encoder.finish().unwrap()), ("br", BROTLI_BOMB.to_vec())]
}

#[tokio::test]
async fn a_bomb_comes_in_pieces_and_stops_at_its_limit() {
    for (coding, bomb) in bombs() {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
            bomb.len()
        );
        let server = Server::answering([head.as_bytes(), &bomb].concat());
        let client = Client::new(&[server.port]);
        for (limit, code) in [(64 << 20, None), (1 << 20, Some("decoded_too_large"))] {
            let limits = RequestLimits { response_bytes: limit, ..RequestLimits::default() };
            let mut response = open(&client, &server.url("/"), &judge_with_limits(limits)).await.unwrap();
            let (body, end) = read_rest(&mut response).await;
            assert_eq!(end.err().map(|error| error.code()), code, "{coding}");
            assert!(body.len() <= limit && body.len() > limit / 2, "{coding}: {}", body.len());
        }
    }
}

#[tokio::test]
async fn a_window_that_is_not_granted_is_not_offered() {
    let bombs = bombs();
    let server = Server::start(move |head, stream| {
        let (_, bomb) = &bombs[1];
        // The server uses brotli although only gzip was offered.
        let coding = if head.contains("accept-encoding: gzip\r\n") { "br" } else { "none" };
        send(stream, format!("HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\n\r\n").as_bytes());
        send(stream, bomb);
    });
    let client = Client::new(&[server.port]);
    let limits = RequestLimits { window_bytes: 1 << 20, ..RequestLimits::default() };
    let refused = open(&client, &server.url("/"), &judge_with_limits(limits)).await;
    assert_eq!(refused.unwrap_err().code(), "coding_unsupported");
}

#[tokio::test]
async fn a_reader_that_does_not_read_stops_the_server() {
    const SENT: usize = 64 << 20;
    let (sender, mut stopped) = unbounded_channel();
    let server = Server::start(move |_head, stream| {
        send(stream, format!("HTTP/1.1 200 OK\r\ncontent-length: {SENT}\r\n\r\n").as_bytes());
        // A write counts as stopped after this time. If the time is too short, the write only counts as stopped
        // earlier.
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let (mut sent, bytes) = (0, vec![b'a'; 64 << 10]);
        while sent < SENT {
            match stream.write(&bytes[..bytes.len().min(SENT - sent)]) {
                Ok(written) => sent += written,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    stream.set_write_timeout(None).unwrap();
                    sender.send(sent).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    let client = Client::new(&[server.port]);
    let limits = RequestLimits { wire_bytes: SENT, response_bytes: SENT, ..RequestLimits::default() };
    let mut response = open(&client, &server.url("/"), &judge_with_limits(limits)).await.unwrap();
    let first = read_piece(&mut response).await;
    let sent = stopped.recv().await.expect("the server was stopped");
    // The kernel's buffers take a part of the body although the client does not read.
    assert!(sent < SENT / 2, "{sent}");
    let (body, end) = read_rest(&mut response).await;
    end.unwrap();
    assert_eq!(first.len() + body.len(), SENT);
}

#[tokio::test]
async fn dropping_a_response_closes_its_connection() {
    let mut in_turn = SteppedServer::with_texts(&["one", "two"]);
    let client = Client::new(&[in_turn.server.port]);
    let judge = Arc::new(RecordingJudge { key: Some("grant"), ..RecordingJudge::default() });
    let mut response = in_turn.open(&client, &judge).await;
    assert_eq!(read_piece(&mut response).await, "one");
    drop((response, in_turn.go));
    in_turn.closed.recv().await.unwrap();
}

#[tokio::test]
async fn cancelling_in_the_middle_closes_the_connection() {
    let mut in_turn = SteppedServer::with_texts(&["one", "two"]);
    let client = Client::new(&[in_turn.server.port]);
    let cancel = CancellationToken::new();
    let request = Request::get(in_turn.server.url("/").parse().unwrap());
    let mut response = client.egress.stream(judge(), request, cancel.clone()).await.unwrap();
    assert_eq!(read_piece(&mut response).await, "one");
    cancel.cancel();
    assert_eq!(response.next().await.unwrap_err().code(), "cancelled");
    drop(in_turn.go);
    in_turn.closed.recv().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_wait_for_the_head_says_so() {
    let server = Server::start(|_head, stream| wait_until_closed(stream));
    let client = Client::new(&[server.port]);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let request = Request::get(server.url("/").parse().unwrap());
    let result = client.egress.stream(judge(), request, cancel).await;
    assert_eq!(result.unwrap_err().code(), "cancelled");
}

#[tokio::test]
async fn the_time_of_a_request_holds_for_its_body() {
    let mut in_turn = SteppedServer::with_texts(&["one", "two"]);
    let client = Client::new(&[in_turn.server.port]);
    let limits = RequestLimits { total_timeout: Duration::from_millis(300), ..RequestLimits::default() };
    let error = match open(&client, &in_turn.server.url("/"), &judge_with_limits(limits)).await {
        Ok(mut response) => read_rest(&mut response).await.1.unwrap_err(),
        // On a slow machine, the time can run out before the head has come.
        Err(error) => error,
    };
    assert_eq!(error.code(), "total_timeout");
    drop(in_turn.go);
    in_turn.closed.recv().await.unwrap();
}

const VALUE: &str = "canary/7f3a+Q==";

/// The value in each form in which a server may repeat it.
fn forms() -> Vec<String> {
    let hexadecimal = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    let utf16 = VALUE.chars().map(|character| format!("{character}\0")).collect();
    let base64 = ["", "a", "ab"].map(|lead| STANDARD.encode(format!("{lead}{VALUE}")));
    let other = [
        VALUE.to_owned(),
        "canary%2F7f3a%2bQ%3D%3D".to_owned(),
        "canary\\/7f3a\\u002bQ\\x3d=".to_owned(),
        "canary&#47;7f3a&#x2B;Q==".to_owned(),
        URL_SAFE.encode(VALUE),
        hexadecimal,
        utf16,
    ];
    [&base64[..], &other].concat()
}

#[tokio::test]
async fn a_secret_across_two_pieces_is_taken_out_in_each_form() {
    for form in forms() {
        let (one, two) = form.split_at(form.len() / 2);
        let in_turn = SteppedServer::with_texts(&[&format!("you are ({one}"), &format!("{two})\n"), ""]);
        let client = Client::new(&[in_turn.server.port]);
        let judge = Arc::new(RecordingJudge {
            credentials: vec![credential(VALUE)],
            audience: vec![in_turn.server.port],
            ..RecordingJudge::default()
        });
        let mut response = in_turn.open(&client, &judge).await;
        assert!(read_piece(&mut response).await.starts_with("you are ("), "{form}");
        in_turn.go.send(()).unwrap();
        in_turn.go.send(()).unwrap();
        let (body, end) = read_rest(&mut response).await;
        end.unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(body.starts_with("REDACTED") || body.starts_with("Y"), "{form}: {body}");
        assert!(body.contains("REDACTED") && body.ends_with(")\n") && body.len() <= 14, "{form}: {body}");
    }
}

#[tokio::test]
async fn a_secret_learned_during_a_stream_is_redacted_later_on() {
    let in_turn = SteppedServer::with_texts(&[&format!("{VALUE}\n"), &format!("{VALUE}\n"), ""]);
    let client = Client::new(&[in_turn.server.port]);
    let judge = judge();
    let mut response = in_turn.open(&client, &judge).await;
    assert_eq!(read_piece(&mut response).await, format!("{VALUE}\n"));
    judge.known.lock().unwrap().push(credential(VALUE));
    in_turn.go.send(()).unwrap();
    assert_eq!(read_piece(&mut response).await, "REDACTED\n");
}

#[tokio::test]
async fn the_headers_of_a_streamed_response_are_redacted() {
    let response = format!("HTTP/1.1 200 OK\r\nx-echo: {VALUE}\r\ncontent-length: 2\r\n\r\nhi");
    let server = Server::answering(response);
    let client = Client::new(&[server.port]);
    let judge = RecordingJudge {
        credentials: vec![credential(VALUE)],
        audience: vec![server.port],
        ..RecordingJudge::default()
    };
    let response = open(&client, &server.url("/"), &Arc::new(judge)).await.unwrap();
    assert_eq!(response.headers["x-echo"], HeaderValue::from_static("REDACTED"));
    assert!(!format!("{response:?}").contains(VALUE));
}

#[tokio::test]
async fn a_part_is_refused_where_a_secret_may_be_cut() {
    let server = Server::answering("HTTP/1.1 206 Partial Content\r\ncontent-length: 2\r\n\r\nhi");
    let client = Client::new(&[server.port]);
    let judge = Arc::new(RecordingJudge {
        credentials: vec![credential(VALUE)],
        audience: vec![server.port],
        ..RecordingJudge::default()
    });
    let refused = open(&client, &server.url("/"), &judge).await;
    assert_eq!(refused.unwrap_err().code(), "response_partial");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_not_complete() {
    for (response, code) in [
        ("content-length: 10\r\n\r\nhalf", "response_truncated"),
        ("transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", "response_truncated"),
        ("content-encoding: br\r\n\r\n\x0b\x02", "coding_invalid"),
    ] {
        let server = Server::answering(format!("HTTP/1.1 200 OK\r\n{response}"));
        let client = Client::new(&[server.port]);
        let mut response = open(&client, &server.url("/"), &judge()).await.unwrap();
        let (body, end) = read_rest(&mut response).await;
        assert_eq!(end.unwrap_err().code(), code);
        assert!(body.is_empty() || body == b"half");
        response.next().await.unwrap_err();
    }
}

#[tokio::test]
async fn a_request_without_a_response_says_why() {
    let server = Server::answering("SSH-2.0-OpenSSH\r\n");
    let client = Client::new(&[server.port]);
    let result = open(&client, &server.url("/"), &judge()).await;
    assert_eq!(result.unwrap_err().code(), "response_invalid");
    // HTTP/2 is neither offered nor read.
    let server = Server::answering("HTTP/2 200\r\n\r\nhi");
    let client = Client::new(&[server.port]);
    let result = open(&client, &server.url("/"), &judge()).await;
    assert_eq!(result.unwrap_err().code(), "response_invalid");
}

#[tokio::test]
async fn redirects_are_judged_before_the_head_is_passed_on() {
    let server = Server::start(|head, stream| {
        let response = if head.starts_with("GET /from ") { redirect("/to") } else { ok("arrived") };
        send(stream, response.as_bytes());
    });
    let client = Client::new(&[server.port]);
    let judge = judge();
    let mut response = open(&client, &server.url("/from"), &judge).await.unwrap();
    assert_eq!((response.redirects, response.url.path()), (1, "/to"));
    assert_eq!(read_piece(&mut response).await, "arrived");
    assert!(judge.questions.lock().unwrap().contains(&"/from to /to".to_owned()));
}

/// A server that keeps its connections open. Each answer is the client's address on the connection.
fn keeping() -> Server {
    Server::listen(|mut stream, requests| {
        while !read_head(&mut stream).is_empty() {
            requests.fetch_add(1, Ordering::SeqCst);
            let client = stream.peer_addr().unwrap().to_string();
            send(&mut stream, ok(&client).as_bytes());
        }
    })
}

#[tokio::test]
async fn a_body_that_was_read_to_its_end_leaves_its_connection() {
    let server = keeping();
    let client = Client::new(&[server.port]);
    let judge = Arc::new(RecordingJudge { key: Some("grant"), ..RecordingJudge::default() });
    let mut answers = Vec::new();
    for _ in 0..2 {
        let mut response = open(&client, &server.url("/"), &judge).await.unwrap();
        let (body, end) = read_rest(&mut response).await;
        end.unwrap();
        answers.push(body);
    }
    // Whole and streamed responses share the kept connections.
    answers.push(client.get(&server.url("/"), &judge).await.unwrap().body.to_vec());
    assert!(answers.iter().all(|response| *response == answers[0]), "{answers:?}");
}

#[tokio::test]
async fn a_thread_passes_on_a_bounded_number_of_responses() {
    let server = Server::start(|head, stream| {
        if head.starts_with("GET /whole ") {
            send(stream, ok("whole").as_bytes());
        } else {
            send(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n");
        }
        wait_until_closed(stream);
    });
    let client = Client::new(&[server.port]);
    let mut responses = Vec::new();
    for _ in 0..128 {
        responses.push(open(&client, &server.url("/"), &judge()).await.unwrap());
    }
    assert_eq!(open(&client, &server.url("/"), &judge()).await.unwrap_err().code(), "busy");
    // Whole responses do not count against the bound.
    assert_eq!(&client.get(&server.url("/whole"), &judge()).await.unwrap().body[..], b"whole");
    drop(responses.pop());
    loop {
        match open(&client, &server.url("/"), &judge()).await {
            Ok(_response) => break,
            // The thread may not have noticed the drop yet.
            Err(error) => assert_code(Err(error), "busy"),
        }
    }
}
