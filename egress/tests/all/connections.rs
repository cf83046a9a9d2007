//! Pooled connections: the requests that may reuse one, and the responses after which a connection is closed.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    io::Read as _,
    net::TcpStream,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use portcullis_egress::{CancellationToken, DnsConfig, Method, Request, RequestLimits};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::fixture::{Authority, Client, RecordingJudge, Server, assert_code, ok, read_head, redirect, send};

/// A server that keeps its connections. `serve` gets a request's head, the number of the connection, and the number of
/// the request on the connection, both from 1. It answers, and returns whether the connection stays open.
struct KeepAliveServer {
    server: Server,
    /// The numbers of the connections that have ended.
    closed: UnboundedReceiver<usize>,
}

impl KeepAliveServer {
    fn start(serve: impl Fn(&str, (usize, usize), &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let (sender, closed) = unbounded_channel();
        let connections = AtomicUsize::new(0);
        let server = Server::listen(move |mut stream, requests| {
            let mut head = read_head(&mut stream);
            // A canary's attempt connects and sends nothing.
            if head.is_empty() {
                return;
            }
            let connection = connections.fetch_add(1, Ordering::SeqCst) + 1;
            for number in 1.. {
                requests.fetch_add(1, Ordering::SeqCst);
                if !serve(&head, (connection, number), &mut stream) {
                    break;
                }
                head = read_head(&mut stream);
                if head.is_empty() {
                    break;
                }
            }
            let _ignored = sender.send(connection);
        });
        Self { server, closed }
    }

    /// Starts a server that answers with the numbers of connection and request.
    fn answering_numbers() -> Self {
        Self::start(|_head, turn, stream| {
            send(stream, numbers(turn).as_bytes());
            true
        })
    }
}

fn numbers((connection, number): (usize, usize)) -> String {
    ok(&format!("{connection}.{number}"))
}

fn judge(key: &'static str) -> Arc<RecordingJudge> {
    Arc::new(RecordingJudge { key: Some(key), ..RecordingJudge::default() })
}

async fn body(client: &Client, url: &str, judge: &Arc<RecordingJudge>) -> String {
    let response = client.get(url, judge).await.unwrap();
    String::from_utf8(response.body.to_vec()).unwrap()
}

#[tokio::test]
async fn a_connection_serves_the_next_request_of_its_grant() {
    let keeping = KeepAliveServer::answering_numbers();
    let client = Client::new(&[keeping.server.port]);
    let (url, judge) = (keeping.server.url("/"), judge("grant"));
    assert_eq!(body(&client, &url, &judge).await, "1.1");
    assert_eq!(body(&client, &url, &judge).await, "1.2");
    // The address is judged again for the request on a kept connection.
    let host = "127.0.0.1 127.0.0.1";
    assert_eq!(*judge.questions.lock().unwrap(), ["GET /", host, "GET /", host]);
}

#[tokio::test]
async fn grants_do_not_share_connections() {
    let keeping = KeepAliveServer::answering_numbers();
    let client = Client::new(&[keeping.server.port]);
    let url = keeping.server.url("/");
    assert_eq!(body(&client, &url, &judge("one")).await, "1.1");
    assert_eq!(body(&client, &url, &judge("two")).await, "2.1");
    assert_eq!(body(&client, &url, &judge("one")).await, "1.2");
    assert_eq!(body(&client, &url, &judge("two")).await, "2.2");
}

#[tokio::test]
async fn a_grant_without_an_identity_keeps_no_connection() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let mut keeping = KeepAliveServer::start(move |head, turn, stream| {
        seen.lock().unwrap().push(head.to_owned());
        send(stream, numbers(turn).as_bytes());
        true
    });
    let client = Client::new(&[keeping.server.port]);
    let url = keeping.server.url("/");
    let judge = Arc::new(RecordingJudge::default());
    assert_eq!(body(&client, &url, &judge).await, "1.1");
    assert_eq!(keeping.closed.recv().await, Some(1));
    assert_eq!(body(&client, &url, &judge).await, "2.1");
    assert!(heads.lock().unwrap().iter().all(|head| head.contains("\r\nconnection: close\r\n")));
}

#[tokio::test]
async fn names_of_one_server_do_not_share_connections() {
    let keeping = KeepAliveServer::answering_numbers();
    let names =
        DnsConfig { hosts: "127.0.0.1 a.test b.test".to_owned(), ..DnsConfig::with_servers(Vec::new()) };
    let client = Client::with_settings(&[keeping.server.port], names, &Authority::new().pem);
    let judge = judge("grant");
    let url = |name: &str| format!("http://{name}:{}/", keeping.server.port);
    assert_eq!(body(&client, &url("a.test"), &judge).await, "1.1");
    assert_eq!(body(&client, &url("b.test"), &judge).await, "2.1");
    assert_eq!(body(&client, &url("a.test"), &judge).await, "1.2");
}

#[tokio::test]
async fn an_address_that_is_no_longer_allowed_is_not_used() {
    let keeping = KeepAliveServer::answering_numbers();
    let client = Client::new(&[keeping.server.port]);
    let url = keeping.server.url("/");
    assert_eq!(body(&client, &url, &judge("grant")).await, "1.1");
    let refused = vec!["127.0.0.1".parse().unwrap()];
    let stricter = Arc::new(RecordingJudge { key: Some("grant"), refused, ..RecordingJudge::default() });
    assert_code(client.get(&url, &stricter).await, "address_private");
    assert_eq!(keeping.server.requests(), 1);
}

/// Checks that a connection is not kept after this response. `code` is the outcome of the first request. `stays_open`
/// says whether the server leaves the connection open, which it can only do if the response marks its own end.
async fn check_not_kept(response: impl Into<Vec<u8>>, code: Result<(), &str>, stays_open: bool) {
    let response = response.into();
    let excerpt = String::from_utf8_lossy(&response[..response.len().min(100)]).into_owned();
    let keeping = KeepAliveServer::start(move |_head, turn, stream| match turn {
        (1, 1) => {
            send(stream, &response);
            stays_open
        }
        turn => {
            send(stream, numbers(turn).as_bytes());
            true
        }
    });
    let client = Client::new(&[keeping.server.port]);
    let limits = RequestLimits { wire_bytes: 1000, max_redirects: 0, ..RequestLimits::default() };
    let judge = Arc::new(RecordingJudge { key: Some("grant"), limits, ..RecordingJudge::default() });
    let url = keeping.server.url("/");
    let first = client.get(&url, &judge).await;
    assert_eq!(first.map(drop).map_err(|error| error.code()), code, "{excerpt}");
    assert_eq!(body(&client, &url, &judge).await, "2.1", "{excerpt}");
}

#[tokio::test]
async fn a_connection_that_a_side_ends_is_not_kept() {
    check_not_kept("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi", Ok(()), true).await;
    check_not_kept("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", Ok(()), true).await;
    check_not_kept("HTTP/1.1 200 OK\r\n\r\nhi", Ok(()), false).await;
}

#[tokio::test]
async fn a_connection_with_bytes_left_over_is_not_kept() {
    let second = ok("of another request");
    for response in [
        format!("{}more", ok("hi")),
        format!("{}{second}", ok("hi")),
        format!("{}\r\n", ok("hi")),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nmore".to_owned(),
        "HTTP/1.1 204 No Content\r\n\r\nbody".to_owned(),
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 4\r\n\r\nbody".to_owned(),
    ] {
        check_not_kept(response, Ok(()), true).await;
    }
}

#[tokio::test]
async fn a_connection_with_a_refused_answer_is_not_kept() {
    let gzip = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\nplain";
    let large = format!("HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n{}", "a".repeat(1001));
    let chunks = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n{}\r\n0\r\n\r\n",
        "a".repeat(1001)
    );
    let unread = "HTTP/1.1 302 Found\r\nlocation: /next\r\ncontent-length: 4\r\n\r\nbody";
    for (response, code) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nhi", "response_framing"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nhi", "response_framing"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "response_invalid"),
        (gzip, "coding_invalid"),
        (&large, "response_too_large"),
        (&chunks, "response_too_large"),
        (unread, "too_many_redirects"),
    ] {
        check_not_kept(response, Err(code), true).await;
    }
}

#[tokio::test]
async fn a_redirect_without_a_body_keeps_its_connection() {
    let keeping = KeepAliveServer::start(|_head, turn, stream| {
        send(stream, if turn.1 == 1 { redirect("/next") } else { numbers(turn) }.as_bytes());
        true
    });
    let client = Client::new(&[keeping.server.port]);
    assert_eq!(body(&client, &keeping.server.url("/"), &judge("grant")).await, "1.2");
}

#[tokio::test]
async fn a_cancelled_request_leaves_no_connection() {
    let (sender, mut events) = unbounded_channel();
    let keeping = KeepAliveServer::start(move |_head, turn, stream| {
        if turn == (1, 1) {
            send(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha");
            sender.send(()).unwrap();
            // The server sends the second half after the cancellation.
            let _closed = stream.read(&mut [0; 1]);
            send(stream, b"lf");
        } else {
            send(stream, numbers(turn).as_bytes());
        }
        true
    });
    let client = Client::new(&[keeping.server.port]);
    let (judge, url) = (judge("grant"), keeping.server.url("/"));
    let cancel = CancellationToken::new();
    let request = Request::get(url.parse().unwrap());
    let (result, ()) = tokio::join!(
        client.egress.send(Arc::<RecordingJudge>::clone(&judge), request, cancel.clone()),
        async {
            events.recv().await.unwrap();
            cancel.cancel();
        }
    );
    assert_code(result, "cancelled");
    assert_eq!(body(&client, &url, &judge).await, "2.1");
}

/// Response splitting: after its first response, the server sends a second one, which waits in the kept connection.
#[tokio::test]
async fn an_answer_that_was_not_asked_for_is_never_taken() {
    for unrequested_bytes in [ok("of another request").into_bytes(), b"\r\n".to_vec(), b"H".to_vec()] {
        let (go, may_go) = mpsc::channel();
        let (sender, mut events) = unbounded_channel();
        let may_go = Mutex::new(may_go);
        let keeping = KeepAliveServer::start(move |_head, turn, stream| {
            send(stream, numbers(turn).as_bytes());
            if turn == (1, 1) {
                may_go.lock().unwrap().recv().unwrap();
                send(stream, &unrequested_bytes);
                // On the loopback device, the bytes are in the client's socket as soon as they are written.
                sender.send(()).unwrap();
            }
            true
        });
        let client = Client::new(&[keeping.server.port]);
        let (judge, url) = (judge("grant"), keeping.server.url("/"));
        assert_eq!(body(&client, &url, &judge).await, "1.1");
        go.send(()).unwrap();
        events.recv().await.unwrap();
        assert_eq!(body(&client, &url, &judge).await, "2.1");
        assert_eq!(keeping.server.requests(), 2);
    }
}

#[tokio::test]
async fn a_server_that_closes_idle_connections_costs_no_error() {
    let (go, may_go) = mpsc::channel::<()>();
    let may_go = Mutex::new(may_go);
    let mut keeping = KeepAliveServer::start(move |_head, turn, stream| {
        send(stream, numbers(turn).as_bytes());
        if turn.0 == 1 {
            may_go.lock().unwrap().recv().unwrap();
        }
        turn.0 != 1
    });
    let client = Client::new(&[keeping.server.port]);
    let (judge, url) = (judge("grant"), keeping.server.url("/"));
    assert_eq!(body(&client, &url, &judge).await, "1.1");
    go.send(()).unwrap();
    assert_eq!(keeping.closed.recv().await, Some(1));
    assert_eq!(body(&client, &url, &judge).await, "2.1");
}

/// A server that reads a request on a kept connection, and closes the connection without a response.
#[tokio::test]
async fn a_request_that_meets_a_closing_server_is_sent_again_once() {
    let keeping = KeepAliveServer::start(|_head, turn, stream| {
        let answers = turn.1 == 1;
        if answers {
            send(stream, numbers(turn).as_bytes());
        }
        answers
    });
    let client = Client::new(&[keeping.server.port]);
    let (judge, url) = (judge("grant"), keeping.server.url("/"));
    assert_eq!(body(&client, &url, &judge).await, "1.1");
    assert_eq!(body(&client, &url, &judge).await, "2.1");
    assert_eq!(keeping.server.requests(), 3);

    // If the second connection gives no response either, the request is not sent again.
    let keeping = KeepAliveServer::start(|_head, turn, stream| {
        let answers = turn == (1, 1);
        if answers {
            send(stream, numbers(turn).as_bytes());
        }
        answers
    });
    let client = Client::new(&[keeping.server.port]);
    let url = keeping.server.url("/");
    assert_eq!(body(&client, &url, &judge).await, "1.1");
    assert_code(client.get(&url, &judge).await, "response_truncated");
    assert_eq!(keeping.server.requests(), 3);
}

#[tokio::test]
async fn an_answer_that_has_begun_is_not_asked_for_again() {
    let keeping = KeepAliveServer::start(|_head, turn, stream| {
        let begins = turn == (1, 2);
        send(stream, if begins { "HTTP/1.1 2".to_owned() } else { numbers(turn) }.as_bytes());
        !begins
    });
    let client = Client::new(&[keeping.server.port]);
    let (judge, url) = (judge("grant"), keeping.server.url("/"));
    assert_eq!(body(&client, &url, &judge).await, "1.1");
    assert_code(client.get(&url, &judge).await, "response_truncated");
    assert_eq!(keeping.server.requests(), 2);
}

#[tokio::test]
async fn a_method_that_is_not_idempotent_has_a_new_connection() {
    let keeping = KeepAliveServer::answering_numbers();
    let client = Client::new(&[keeping.server.port]);
    let (judge, url) = (judge("grant"), keeping.server.url("/"));
    let send = async |method: Method| {
        let request = Request { method, ..Request::get(url.parse().unwrap()) };
        String::from_utf8(client.send(request, &judge).await.unwrap().body.to_vec()).unwrap()
    };
    assert_eq!(send(Method::GET).await, "1.1");
    assert_eq!(send(Method::POST).await, "2.1");
    assert_eq!(send(Method::PATCH).await, "3.1");
    // The connection of a method that is not idempotent is kept for later requests.
    assert_eq!(send(Method::PUT).await, "3.2");
    assert_eq!(send(Method::DELETE).await, "3.3");
}

#[tokio::test]
async fn only_a_few_connections_of_a_grant_are_kept() {
    const AT_ONCE: usize = 10;
    const KEPT: usize = 6;
    let barrier = Arc::new(Barrier::new(AT_ONCE));
    let mut keeping = KeepAliveServer::start(move |_head, turn, stream| {
        if turn.1 == 1 {
            barrier.wait();
        }
        send(stream, numbers(turn).as_bytes());
        true
    });
    let client = Client::new(&[keeping.server.port]);
    let (judge, url) = (judge("grant"), keeping.server.url("/"));
    let all = (0..AT_ONCE).map(|_| body(&client, &url, &judge));
    let bodies = futures_util::future::join_all(all).await;
    assert!(bodies.iter().all(|body| body.ends_with(".1")), "{bodies:?}");
    for _closed in KEPT..AT_ONCE {
        keeping.closed.recv().await.unwrap();
    }
    assert!(body(&client, &url, &judge).await.ends_with(".2"));
    drop(client);
    for _kept in 0..KEPT {
        keeping.closed.recv().await.unwrap();
    }
}

#[tokio::test]
async fn the_connection_that_waits_longest_makes_room() {
    const KEPT: usize = 32;
    const SERVERS: usize = KEPT + 2;
    let mut keeping = KeepAliveServer::answering_numbers();
    let names: Vec<String> = (0..SERVERS).map(|number| format!("n{number}.test")).collect();
    let hosts = format!("127.0.0.1 {}", names.join(" "));
    let names = DnsConfig { hosts, ..DnsConfig::with_servers(Vec::new()) };
    let client = Client::with_settings(&[keeping.server.port], names, &Authority::new().pem);
    let judge = judge("grant");
    let port = keeping.server.port;
    let url = |number: usize| format!("http://n{number}.test:{port}/");
    for number in 0..SERVERS {
        assert_eq!(body(&client, &url(number), &judge).await, format!("{}.1", number + 1));
        // Each connection that makes room is awaited, because each has its own thread at the server.
        if number >= KEPT {
            assert_eq!(keeping.closed.recv().await, Some(number - KEPT + 1));
        }
    }
    assert_eq!(body(&client, &url(2), &judge).await, "3.2");
    assert_eq!(body(&client, &url(0), &judge).await, format!("{}.1", SERVERS + 1));
}

#[tokio::test]
async fn a_hundred_requests_over_kept_connections_have_their_answers() {
    let keeping = KeepAliveServer::start(|head, _turn, stream| {
        send(stream, ok(head.split(' ').nth(1).unwrap()).as_bytes());
        true
    });
    let client = Client::new(&[keeping.server.port]);
    let judge = judge("grant");
    for round in 0..3 {
        let all = (0..100).map(|number| {
            let (client, judge, path) = (&client, &judge, format!("/{round}/{number}"));
            let url = keeping.server.url(&path);
            async move { assert_eq!(body(client, &url, judge).await, path) }
        });
        futures_util::future::join_all(all).await;
    }
}
