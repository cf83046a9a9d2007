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
pub(super) struct Seen {
    pub(super) line: String,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Seen {
    pub(super) fn body(&self) -> Value {
        serde_json::from_str(&self.text).expect("a request's body is JSON")
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
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
    /// The same bytes for ever.
    Endless(Bytes),
    /// The connection breaks.
    Break,
    /// Nothing more comes, and the connection stays.
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

    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
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

/// The server. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    given_up: mpsc::UnboundedReceiver<()>,
    _accepts: JoinSet<()>,
}

impl Server {
    /// Answers the first request with the first reply, and so on; later ones with status 418.
    pub(super) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (gone, given_up) = mpsc::unbounded_channel();
        let state = State { replies: Mutex::new(replies.into_iter().collect()), seen: seen.clone(), gone };
        let mut accepts = JoinSet::new();
        accepts.spawn(accept(listener, Arc::new(state)));
        Self { address, seen, given_up, _accepts: accepts }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("not poisoned").clone()
    }

    /// Waits until a client has left an unfinished answer.
    pub(super) async fn given_up(&mut self) {
        self.given_up.recv().await.expect("the server runs");
    }
}

struct State {
    replies: Mutex<VecDeque<Reply>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    gone: mpsc::UnboundedSender<()>,
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { return };
        let state = state.clone();
        connections.spawn(async move {
            let service = service_fn(|request| reply(request, state.clone()));
            // Clients that drop the connection are part of the tests.
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
    let text = String::from_utf8(body.to_vec()).expect("text");
    state.seen.lock().expect("not poisoned").push(Seen { line, headers, text });
    let next = state.replies.lock().expect("not poisoned").pop_front();
    let reply = next.unwrap_or_else(|| Reply::new(418, "text/plain", "there is no further reply"));
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(*name, value);
    }
    let watch = Watch { over: false, gone: state.gone.clone() };
    Ok(response.body(StreamBody::new(body_frames(reply.pieces, watch))).expect("a response"))
}

fn body_frames(pieces: VecDeque<Piece>, watch: Watch) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    stream::unfold((pieces, watch), |(mut pieces, mut watch)| async move {
        let item = match pieces.pop_front() {
            None => {
                watch.over();
                return None;
            }
            Some(Piece::Bytes(bytes)) => Ok(Frame::data(bytes)),
            Some(Piece::Endless(bytes)) => {
                pieces.push_front(Piece::Endless(bytes.clone()));
                Ok(Frame::data(bytes))
            }
            Some(Piece::Break) => {
                watch.over();
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
struct Watch {
    over: bool,
    gone: mpsc::UnboundedSender<()>,
}

impl Watch {
    fn over(&mut self) {
        self.over = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.over {
            // The receiver may be gone already.
            let _ = self.gone.send(());
        }
    }
}
