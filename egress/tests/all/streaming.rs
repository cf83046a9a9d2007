//! Responses whose bodies are read while they come.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::{
    io::{Read as _, Write as _},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use portcullis_egress::{
    CancellationToken, Credential, FetchError, Limits, Request, SecretValue, StatusCode, StreamedResponse,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::world::{Asked, Client, Server, ok, read_head, send};

/// A server that sends the first part with its head, and the others when it is told to; then it waits for the client to
/// close, and tells so.
struct InTurn {
    server: Server,
    go: mpsc::Sender<()>,
    closed: UnboundedReceiver<()>,
}

impl InTurn {
    fn sending(parts: &[&str]) -> Self {
        let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
        let (go, may_go) = mpsc::channel();
        let may_go = Mutex::new(may_go);
        let (told, closed) = unbounded_channel();
        let server = Server::start(move |_head, stream| {
            send(stream, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-one: two\r\n\r\n");
            for (number, part) in parts.iter().enumerate() {
                if number > 0 && may_go.lock().unwrap().recv().is_err() {
                    break;
                }
                send(stream, format!("{:x}\r\n{part}\r\n", part.len()).as_bytes());
            }
            let _reset = stream.read_to_end(&mut Vec::new());
            told.send(()).unwrap();
        });
        Self { server, go, closed }
    }

    async fn open(&self, client: &Client, judge: Asked) -> StreamedResponse {
        open(client, &self.server.url("/"), judge, CancellationToken::new()).await.unwrap()
    }
}

async fn open(
    client: &Client,
    url: &str,
    judge: Asked,
    cancel: CancellationToken,
) -> Result<StreamedResponse, FetchError> {
    client.egress.stream(Arc::new(judge), Request::get(url.parse().unwrap()), cancel).await
}

async fn piece(response: &mut StreamedResponse) -> String {
    String::from_utf8(response.next().await.unwrap().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_piece_comes_while_the_server_has_more() {
    let in_turn = InTurn::sending(&["one", "two", ""]);
    let client = Client::new(&[in_turn.server.port]);
    let mut response = in_turn.open(&client, Asked::default()).await;
    assert_eq!((response.status, response.headers["x-one"].as_bytes()), (StatusCode::OK, &b"two"[..]));
    // The server waits for the reader of its first part.
    assert_eq!(piece(&mut response).await, "one");
    in_turn.go.send(()).unwrap();
    assert_eq!(piece(&mut response).await, "two");
    in_turn.go.send(()).unwrap();
    assert_eq!(response.next().await.unwrap(), None);
    assert_eq!(response.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_body_without_end_stops_at_its_limit() {
    let (told, mut ended) = unbounded_channel();
    let server = Server::start(move |_head, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'a'; 1000]).is_ok() {}
        told.send(()).unwrap();
    });
    let client = Client::new(&[server.port]);
    let limits = Limits { wire_bytes: 1 << 20, ..Limits::default() };
    let judge = Asked { limits, ..Asked::default() };
    let mut response = open(&client, &server.url("/"), judge, CancellationToken::new()).await.unwrap();
    let mut read = 0;
    let error = loop {
        match response.next().await {
            Ok(piece) => {
                let piece = piece.expect("no end");
                assert!(!piece.is_empty() && piece.len() <= 64 << 10);
                read += piece.len();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), "response_too_large");
    assert!(read <= 1 << 20, "{read}");
    ended.recv().await.unwrap();
}

#[tokio::test]
async fn dropping_a_response_closes_its_connection() {
    let mut in_turn = InTurn::sending(&["one", "two"]);
    let client = Client::new(&[in_turn.server.port]);
    let mut response = in_turn.open(&client, Asked::default()).await;
    assert_eq!(piece(&mut response).await, "one");
    drop((response, in_turn.go));
    in_turn.closed.recv().await.unwrap();
}

#[tokio::test]
async fn cancelling_in_the_middle_closes_the_connection() {
    let mut in_turn = InTurn::sending(&["one", "two"]);
    let client = Client::new(&[in_turn.server.port]);
    let cancel = CancellationToken::new();
    let url = in_turn.server.url("/");
    let mut response = open(&client, &url, Asked::default(), cancel.clone()).await.unwrap();
    assert_eq!(piece(&mut response).await, "one");
    cancel.cancel();
    assert_eq!(response.next().await.unwrap_err().code(), "cancelled");
    drop(in_turn.go);
    in_turn.closed.recv().await.unwrap();
}

#[tokio::test]
async fn the_time_of_a_request_holds_for_its_body() {
    let mut in_turn = InTurn::sending(&["one", "two"]);
    let client = Client::new(&[in_turn.server.port]);
    let limits = Limits { total: Duration::from_millis(500), ..Limits::default() };
    let mut response = in_turn.open(&client, Asked { limits, ..Asked::default() }).await;
    assert_eq!(piece(&mut response).await, "one");
    assert_eq!(response.next().await.unwrap_err().code(), "total_timeout");
    drop(in_turn.go);
    in_turn.closed.recv().await.unwrap();
}

#[tokio::test]
async fn a_secret_across_two_pieces_is_taken_out() {
    let in_turn = InTurn::sending(&["you are hunter2", "hunter2, and", ""]);
    let value = SecretValue::new(b"hunter2hunter2".to_vec()).unwrap();
    let credential = Credential::new("test", &value, "x-key", ("", "")).unwrap();
    let client = Client::new(&[in_turn.server.port]);
    let judge =
        Asked { credentials: vec![credential], audience: vec![in_turn.server.port], ..Asked::default() };
    let mut response = in_turn.open(&client, judge).await;
    assert_eq!(piece(&mut response).await, "you are ");
    in_turn.go.send(()).unwrap();
    assert_eq!(piece(&mut response).await, "REDACTED, an");
    in_turn.go.send(()).unwrap();
    assert_eq!(piece(&mut response).await, "d");
    assert_eq!(response.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_end() {
    let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
    let client = Client::new(&[server.port]);
    let mut response =
        open(&client, &server.url("/"), Asked::default(), CancellationToken::new()).await.unwrap();
    assert_eq!(piece(&mut response).await, "half");
    assert_eq!(response.next().await.unwrap_err().code(), "response_truncated");
}

#[tokio::test]
async fn a_request_without_a_response_says_why() {
    let server = Server::answering("SSH-2.0-OpenSSH\r\n");
    let client = Client::new(&[server.port]);
    let result = open(&client, &server.url("/"), Asked::default(), CancellationToken::new()).await;
    assert_eq!(result.unwrap_err().code(), "response_invalid");
}

#[tokio::test]
async fn a_body_that_was_read_to_its_end_leaves_its_connection() {
    let server = Server::listen(|mut stream, requests| {
        while !read_head(&mut stream).is_empty() {
            let before = requests.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let peer = stream.peer_addr().unwrap();
            send(&mut stream, ok(&format!("{before} on {peer}")).as_bytes());
        }
    });
    let client = Client::new(&[server.port]);
    let mut bodies = Vec::new();
    for _request in 0..2 {
        let judge = Asked { key: Some("grant"), ..Asked::default() };
        let mut response = open(&client, &server.url("/"), judge, CancellationToken::new()).await.unwrap();
        bodies.push(piece(&mut response).await);
        assert_eq!(response.next().await.unwrap(), None);
    }
    let on = |body: &str| body.split_once(" on ").unwrap().1.to_owned();
    assert_eq!(on(&bodies[0]), on(&bodies[1]));
}
