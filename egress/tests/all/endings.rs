//! Requests that end without a complete response: by a deadline, by the caller, or by a panic.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, TcpStream},
    sync::{Arc, mpsc},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use portcullis_egress::{CancellationToken, Judge, Method, Refusal, Request, RequestLimits, Url};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::fixture::{Client, RecordingJudge, Server, assert_code, ok, send};

/// A server that begins a response and never ends it. It reports the beginning, and the end of the connection.
fn hanging(sender: UnboundedSender<&'static str>) -> Server {
    Server::start(move |_head, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf");
        sender.send("begun").unwrap();
        wait_until_closed(stream);
        sender.send("closed").unwrap();
    })
}

fn wait_until_closed(stream: &mut TcpStream) {
    let _closed = stream.read_to_end(&mut Vec::new());
}

fn judge(limits: RequestLimits) -> Arc<RecordingJudge> {
    Arc::new(RecordingJudge { limits, ..RecordingJudge::default() })
}

#[tokio::test]
async fn cancelling_closes_the_connection() {
    let (sender, mut events) = unbounded_channel();
    let server = hanging(sender);
    let client = Client::new(&[server.port]);
    let cancel = CancellationToken::new();
    let request = Request::get(server.url("/").parse().unwrap());
    let (result, ()) =
        tokio::join!(client.egress.send(judge(RequestLimits::default()), request, cancel.clone()), async {
            assert_eq!(events.recv().await, Some("begun"));
            cancel.cancel();
        });
    assert_code(result, "cancelled");
    assert_eq!(events.recv().await, Some("closed"));
}

#[tokio::test]
async fn dropping_a_request_closes_the_connection() {
    let (sender, mut events) = unbounded_channel();
    let server = hanging(sender);
    let client = Client::new(&[server.port]);
    let (judge, url) = (judge(RequestLimits::default()), server.url("/"));
    tokio::select! {
        result = client.get(&url, &judge) => panic!("{result:?}"),
        begun = events.recv() => assert_eq!(begun, Some("begun")),
    }
    assert_eq!(events.recv().await, Some("closed"));
}

#[tokio::test]
async fn dropping_the_client_closes_its_connections() {
    let (sender, mut events) = unbounded_channel();
    let server = hanging(sender);
    let client = Client::new(&[server.port]);
    let judge = judge(RequestLimits::default());
    let url = server.url("/");
    {
        let mut request = std::pin::pin!(client.get(&url, &judge));
        tokio::select! {
            result = &mut request => panic!("{result:?}"),
            _begun = events.recv() => {}
        }
    }
    drop(client);
    assert_eq!(events.recv().await, Some("closed"));
}

#[tokio::test]
async fn a_dripping_body_ends_at_the_deadline() {
    let server = Server::start(|_head, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\n\r\n");
        let (_keep, never) = mpsc::channel::<()>();
        while stream.write_all(b"a").is_ok() {
            // Each byte comes in time, so that only the total time limit can end the request.
            let _elapsed = never.recv_timeout(Duration::from_millis(10));
        }
    });
    let limits = RequestLimits { total_timeout: Duration::from_millis(300), ..RequestLimits::default() };
    let result = Client::new(&[server.port]).get(&server.url("/"), &judge(limits)).await;
    assert_code(result, "total_timeout");
}

#[tokio::test]
async fn a_silent_server_ends_at_its_deadline() {
    let server = Server::start(|_head, stream| wait_until_closed(stream));
    let limits = RequestLimits { first_byte_timeout: Duration::from_millis(100), ..RequestLimits::default() };
    let result = Client::new(&[server.port]).get(&server.url("/"), &judge(limits)).await;
    assert_code(result, "first_byte_timeout");
}

#[tokio::test]
async fn dripping_headers_end_at_their_deadline() {
    let server = Server::start(|_head, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\nx: ");
        let (_keep, never) = mpsc::channel::<()>();
        while stream.write_all(b"a").is_ok() {
            let _elapsed = never.recv_timeout(Duration::from_millis(10));
        }
    });
    let limits = RequestLimits { first_byte_timeout: Duration::from_millis(300), ..RequestLimits::default() };
    let result = Client::new(&[server.port]).get(&server.url("/"), &judge(limits)).await;
    assert_code(result, "first_byte_timeout");
}

#[tokio::test]
async fn many_requests_at_a_time_have_their_own_answers() {
    let server = Server::start(|head, stream| {
        let path = head.split(' ').nth(1).unwrap();
        send(stream, ok(path).as_bytes());
    });
    let client = Client::new(&[server.port]);
    let judge = judge(RequestLimits::default());
    let answers = (0..60).map(|number| {
        let (client, judge, path) = (&client, &judge, format!("/{number}"));
        let url = server.url(&path);
        async move { assert_eq!(client.get(&url, judge).await.unwrap().body, path.as_bytes()) }
    });
    futures_util::future::join_all(answers).await;
}

#[tokio::test]
async fn requests_beyond_the_queue_are_refused_immediately() {
    let (sender, mut events) = unbounded_channel();
    let server = hanging(sender);
    let client = Client::new(&[server.port]);
    let (judge, url) = (judge(RequestLimits::default()), server.url("/"));
    let mut waiting: Vec<_> = (0..300).map(|_| Box::pin(client.get(&url, &judge))).collect();
    // One poll of each request gives it a place in the queue, or refuses it.
    let mut refused = 0;
    for request in &mut waiting {
        if let Some(result) = futures_util::FutureExt::now_or_never(request.as_mut()) {
            assert_code(result, "busy");
            refused += 1;
        }
    }
    assert!(refused > 0 && refused < 300, "{refused}");
    assert_eq!(events.recv().await, Some("begun"));
}

struct Panicking;

impl Judge for Panicking {
    fn judge_request(&self, _method: &Method, _url: &Url) -> Result<(), Refusal> {
        panic!("a bug in a judge")
    }

    fn judge_address(&self, _host: &str, _port: u16, _address: IpAddr) -> Result<(), Refusal> {
        Ok(())
    }

    fn judge_redirect(&self, _from: &Url, _to: &Url) -> Result<(), Refusal> {
        Ok(())
    }

    fn limits(&self) -> RequestLimits {
        RequestLimits::default()
    }
}

#[tokio::test]
async fn a_panic_ends_its_own_request_only() {
    let server = Server::answering(ok("hi"));
    let client = Client::new(&[server.port]);
    let request = Request::get(server.url("/").parse().unwrap());
    let result = client.egress.send(Arc::new(Panicking), request, CancellationToken::new()).await;
    assert_code(result, "stopped");
    client.get(&server.url("/"), &judge(RequestLimits::default())).await.unwrap();
}

#[tokio::test]
async fn requests_on_one_thread_take_turns() {
    let (sender, mut events) = unbounded_channel();
    let (slow_server, fast_server) = (hanging(sender), Server::answering(ok("hi")));
    let client = Client::new(&[slow_server.port, fast_server.port]);
    let (judge, url) = (judge(RequestLimits::default()), slow_server.url("/"));
    let mut waiting = std::pin::pin!(client.get(&url, &judge));
    tokio::select! {
        result = &mut waiting => panic!("{result:?}"),
        _begun = events.recv() => {}
    }
    assert_eq!(&client.get(&fast_server.url("/"), &judge).await.unwrap().body[..], b"hi");
}

#[tokio::test]
async fn the_wait_for_a_thread_is_part_of_a_requests_time() {
    let (sender, mut events) = unbounded_channel();
    let server = hanging(sender);
    let (client, long_limit_judge) = (Client::new(&[server.port]), judge(RequestLimits::default()));
    let url = server.url("/");
    // 64 requests are as many as the thread processes at a time.
    let mut running: FuturesUnordered<_> = (0..64).map(|_| client.get(&url, &long_limit_judge)).collect();
    for _ in 0..64 {
        tokio::select! {
            result = running.next() => panic!("{result:?}"),
            begun = events.recv() => assert_eq!(begun, Some("begun")),
        }
    }
    let short_limit_judge =
        judge(RequestLimits { total_timeout: Duration::from_millis(50), ..RequestLimits::default() });
    tokio::select! {
        biased;
        result = client.get(&url, &short_limit_judge) => assert_code(result, "total_timeout"),
        result = running.next() => panic!("the request waited for {result:?}"),
    }
    assert_eq!(server.requests(), 64);
}
