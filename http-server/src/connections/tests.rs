//! Connections over loopback, with small limits.

use std::{net::SocketAddr, time::Duration};

use http::Response;
use http_body_util::Full;
use hyper::body::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{Connections, HttpLimits};

/// A server that answers each request with its path, and never answers the path `/never`.
struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinSet<Connections>,
}

impl Served {
    async fn start(connections: usize, head: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let (stop, mut serving) = (CancellationToken::new(), JoinSet::new());
        let stopped = stop.clone();
        serving.spawn(async move {
            let limits =
                HttpLimits { max_connections: connections, head_timeout: head, max_head_bytes: 8 << 10 };
            let handler = async |request: http::Request<hyper::body::Incoming>| {
                let path = request.uri().path().to_owned();
                if path == "/never" {
                    std::future::pending::<()>().await;
                }
                Response::new(Full::new(Bytes::from(path)))
            };
            Connections::accept(listener, &limits, handler, stopped.cancelled()).await
        });
        Self { address, stop, serving }
    }

    /// Opens a connection, and sends this text on it.
    async fn send(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("connects");
        stream.write_all(text.as_bytes()).await.expect("sends");
        stream
    }

    async fn stop(mut self, grace: Duration) {
        self.stop.cancel();
        let open = self.serving.join_next().await.expect("serves").expect("no panic");
        open.close(grace).await;
    }
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("reads");
    text
}

async fn read_answer(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    while !response.windows(4).any(|window| window == b"/ok!") {
        assert_ne!(stream.read_buf(&mut response).await.expect("reads"), 0, "{response:?}");
    }
    String::from_utf8_lossy(&response).into_owned()
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_connection_beyond_the_limit_is_refused_until_another_ends() {
    let served = Served::start(1, LONG).await;
    let mut first = served.send("GET /ok! HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(read_answer(&mut first).await.starts_with("HTTP/1.1 200"));
    let refused = rest(served.send("").await).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused}");
    drop(first);
    loop {
        // The server notices the end of the first connection only after a while. A refused connection is
        // reset, because its request was not read.
        let mut next = served.send("GET /ok! HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut response = [0; 12];
        if next.read_exact(&mut response).await.is_ok() && &response == b"HTTP/1.1 200" {
            break;
        }
    }
    served.stop(LONG).await;
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let served = Served::start(8, Duration::from_millis(50)).await;
    for begin in ["", "GET /ok! HTTP/1.1\r\nhost:"] {
        let response = rest(served.send(begin).await).await;
        assert!(!response.contains("200"), "{response}");
    }
    served.stop(LONG).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let served = Served::start(8, LONG).await;
    let large = format!("GET /ok! HTTP/1.1\r\nhost: x\r\na: {}\r\n\r\n", "x".repeat(32 << 10));
    let many = format!("GET /ok! HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(100));
    for request in [large, many] {
        let mut stream = served.send(&request).await;
        let mut response = [0; 12];
        stream.read_exact(&mut response).await.expect("a response");
        assert_eq!(&response, b"HTTP/1.1 431");
    }
    served.stop(LONG).await;
}

#[tokio::test]
async fn a_stop_gives_busy_connections_a_grace_period() {
    let served = Served::start(8, LONG).await;
    let mut idle = served.send("GET /ok! HTTP/1.1\r\nhost: x\r\n\r\n").await;
    read_answer(&mut idle).await;
    let address = served.address;
    served.stop(LONG).await;
    assert_eq!(rest(idle).await, "");
    TcpStream::connect(address).await.expect_err("the listener is closed");

    let served = Served::start(8, LONG).await;
    let hanging = served.send("GET /never HTTP/1.1\r\nhost: x\r\n\r\n").await;
    served.stop(Duration::from_millis(50)).await;
    let mut hanging = hanging;
    // The connection is reset or closed, without a response.
    let read = hanging.read(&mut [0; 16]).await;
    assert!(read.is_err() || read.is_ok_and(|read| read == 0));
}
