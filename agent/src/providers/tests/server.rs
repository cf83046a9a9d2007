//! A local server that gives one prepared reply per request and records the requests.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use futures_util::{future, stream, stream::Stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    header::HeaderMap,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

/// A recorded request.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    pub(super) line: String,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl ReceivedRequest {
    pub(super) fn body(&self) -> Value {
        serde_json::from_str(&self.text).expect("a request's body is JSON")
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("the header is ASCII"))
    }
}

/// A prepared reply.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    pieces: VecDeque<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Bytes(Bytes),
    /// The same bytes, repeated forever.
    Endless(Bytes),
    /// The connection breaks.
    Break,
    /// The connection stays open, but sends nothing more.
    Stall,
}

impl Reply {
    pub(super) fn new(status: u16, content_type: &str, body: impl AsRef<[u8]>) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self { status, headers, pieces: VecDeque::new() }.and(body)
    }

    pub(super) fn events(body: impl AsRef<[u8]>) -> Self {
        Self::new(200, "text/event-stream", body)
    }

    pub(super) fn error(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    pub(super) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn and(mut self, body: impl AsRef<[u8]>) -> Self {
        self.pieces.push_back(Piece::Bytes(Bytes::copy_from_slice(body.as_ref())));
        self
    }

    pub(super) fn and_break(mut self) -> Self {
        self.pieces.push_back(Piece::Break);
        self
    }

    pub(super) fn and_stall(mut self) -> Self {
        self.pieces.push_back(Piece::Stall);
        self
    }

    pub(super) fn and_for_ever(mut self, body: impl AsRef<[u8]>) -> Self {
        self.pieces.push_back(Piece::Endless(Bytes::copy_from_slice(body.as_ref())));
        self
    }
}

/// The server. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    abandonments: mpsc::UnboundedReceiver<()>,
    _accepts: JoinSet<()>,
}

impl Server {
    /// Answers the first request with the first reply, and so on. Requests beyond the replies get status 418.
    pub(super) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (abandoned, abandonments) = mpsc::unbounded_channel();
        let state = State {
            replies: Mutex::new(replies.into_iter().collect()),
            requests: requests.clone(),
            abandoned,
        };
        let mut accepts = JoinSet::new();
        accepts.spawn(accept(listener, Arc::new(state)));
        Self { address, requests, abandonments, _accepts: accepts }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().expect("not poisoned").clone()
    }

    /// Waits until a client has left an unfinished answer.
    pub(super) async fn wait_until_abandoned(&mut self) {
        self.abandonments.recv().await.expect("the server runs");
    }
}

struct State {
    replies: Mutex<VecDeque<Reply>>,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    abandoned: mpsc::UnboundedSender<()>,
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { return };
        let state = state.clone();
        connections.spawn(async move {
            let service = service_fn(|request| reply(request, state.clone()));
            // Ignore the error: clients that drop the connection are part of the tests.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

async fn reply(
    request: Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = io::Error>>, Infallible> {
    let line = format!("{} {}", request.method(), request.uri());
    let headers = request.headers().clone();
    let body = request.into_body().collect().await.expect("a whole request").to_bytes();
    let text = String::from_utf8(body.to_vec()).expect("the request is UTF-8");
    state.requests.lock().expect("not poisoned").push(ReceivedRequest { line, headers, text });
    let next = state.replies.lock().expect("not poisoned").pop_front();
    let reply = next.unwrap_or_else(|| Reply::new(418, "text/plain", "there is no further reply"));
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(*name, value);
    }
    let watch = BodyWatch { is_finished: false, abandoned: state.abandoned.clone() };
    Ok(response.body(StreamBody::new(body_frames(reply.pieces, watch))).expect("a response"))
}

fn body_frames(pieces: VecDeque<Piece>, watch: BodyWatch) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    stream::unfold((pieces, watch), |(mut pieces, mut watch)| async move {
        let item = match pieces.pop_front() {
            None => {
                watch.finish();
                return None;
            }
            Some(Piece::Bytes(bytes)) => Ok(Frame::data(bytes)),
            Some(Piece::Endless(bytes)) => {
                pieces.push_front(Piece::Endless(bytes.clone()));
                Ok(Frame::data(bytes))
            }
            Some(Piece::Break) => {
                watch.finish();
                // Yield, so that everything sent before leaves first.
                tokio::task::yield_now().await;
                Err(io::Error::other("the connection breaks"))
            }
            Some(Piece::Stall) => future::pending().await,
        };
        Some((item, (pieces, watch)))
    })
}

/// Reports when a body is dropped before its end.
struct BodyWatch {
    is_finished: bool,
    abandoned: mpsc::UnboundedSender<()>,
}

impl BodyWatch {
    fn finish(&mut self) {
        self.is_finished = true;
    }
}

impl Drop for BodyWatch {
    fn drop(&mut self) {
        if !self.is_finished {
            // The receiver may be gone already.
            let _ = self.abandoned.send(());
        }
    }
}
