//! A gateway for tests, over in-memory connections. Unlike with sockets, tokio's paused clock does not
//! advance while bytes are in flight.

use std::{
    collections::VecDeque,
    future, io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex},
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    Gateway,
    address::{Address, PlainHttp},
    transport,
};

/// The token of the tests.
pub(crate) const TOKEN: &str = "pct_verysecret";

/// How a stream of events ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// The stream ends gracefully, as when the gateway stops.
    Closes,
    /// The stream breaks in the middle of the body.
    Breaks,
    /// The stream stays open without further data.
    IsSilent,
}

/// The gateway. It records the requests that it gets, and gives the responses that a test has queued.
pub(crate) struct FakeGateway {
    state: Arc<FakeState>,
    connector: mpsc::UnboundedSender<DuplexStream>,
    /// The server. It ends with this value.
    _server: JoinSet<()>,
}

#[derive(Default)]
struct FakeState {
    recorded: Mutex<FakeGatewayScript>,
    change_sender: watch::Sender<()>,
}

/// The requests that the gateway got, and the responses that it will give.
#[derive(Default)]
pub(crate) struct FakeGatewayScript {
    /// The connections for events: when they were opened, and with which `Last-Event-ID`.
    pub(crate) connections: Vec<(Instant, Option<String>)>,
    /// The queries of lists.
    pub(crate) lists: Vec<String>,
    /// The submissions: the run and the body.
    pub(crate) submissions: Vec<(String, Value)>,
    /// The calls that accept a result, with their status.
    pub(crate) calls: Vec<Value>,
    /// The responses to the next connections for events. After these, streams are silent.
    pub(crate) streams: VecDeque<Response>,
    /// The responses to the next lists. After these, lists contain `calls`.
    pub(crate) list_responses: VecDeque<Response>,
    /// The responses to the next submissions. `None` breaks the connection. After these, each result is
    /// accepted.
    pub(crate) submission_responses: VecDeque<Option<Response>>,
}

impl FakeGateway {
    pub(crate) fn start() -> Self {
        let state = Arc::new(FakeState::default());
        let router = Router::new()
            .route("/api/calls", get(list))
            .route("/api/runs/{run}/tool-results", post(submit))
            .route("/api/agents/{agent}/events", get(events))
            .with_state(Arc::clone(&state));
        let (connector, accepted) = mpsc::unbounded_channel();
        let mut server = JoinSet::new();
        server.spawn(async {
            axum::serve(MemoryListener(accepted), router).await.expect("serves");
        });
        Self { state, connector, _server: server }
    }

    /// Returns a client of this gateway.
    pub(crate) fn client(&self) -> Gateway {
        let connector = self.connector.clone();
        let connect = tower::service_fn(move |_: Uri| {
            let (client, server) = duplex(1 << 16);
            let sent = connector.send(server).map_err(|_closed| io::Error::other("the gateway has ended"));
            future::ready(sent.map(|()| TokioIo::new(MemoryStream(client))))
        });
        let address = Address::new("http://localhost", PlainHttp::OnThisMachine).expect("an address");
        Gateway::with_transport(address, TOKEN, transport::pooled_transport(connect)).expect("a gateway")
    }

    pub(crate) fn noted(&self) -> MutexGuard<'_, FakeGatewayScript> {
        self.state.recorded.lock().expect("no panic under the lock")
    }

    /// Waits until a condition on the requests holds.
    pub(crate) async fn wait_until(&self, condition: impl Fn(&FakeGatewayScript) -> bool) {
        let mut changed = self.state.change_sender.subscribe();
        changed.wait_for(|()| condition(&self.noted())).await.expect("the gateway runs");
    }

    /// Returns the submitted results, by call.
    pub(crate) fn results(&self) -> Vec<(String, Value)> {
        let noted = self.noted();
        let body = |(_, body): &(String, Value)| (text(&body["callId"]), body["result"].clone());
        noted.submissions.iter().map(body).collect()
    }
}

/// Returns a call as the list has it.
pub(crate) fn call(id: &str, tool: &str, args: &Value) -> Value {
    json!({
        "callId": id, "runId": "run_1", "agentId": "agt_1", "toolName": tool, "args": args, "status": "waiting",
        "result": null, "createdAt": "2026-11-28T10:00:00.000Z", "expiresAt": null, "executionType": "external",
        "spaceId": null,
    })
}

/// Returns the event for a call that accepts a result.
pub(crate) fn pending(id: u32, call_id: &str, tool: &str, args: &Value) -> String {
    let data = json!({
        "callId": call_id, "runId": "run_1", "agentId": "agt_1", "name": tool, "args": args,
        "executionType": "external", "status": "waiting", "expiresAt": null,
    });
    stored(id, "call.pending", &data)
}

/// Returns a stored event.
pub(crate) fn stored(id: u32, kind: &str, data: &Value) -> String {
    format!("id: {id}\nevent: {kind}\ndata: {data}\n\n")
}

/// Returns a stream of events.
pub(crate) fn stream(parts: impl IntoIterator<Item = String>, end: End) -> Response {
    let parts: Vec<_> = parts.into_iter().map(|part| Ok(Bytes::from(part))).collect();
    let parts = stream::iter(parts);
    let body = match end {
        End::Closes => Body::from_stream(parts),
        // Yield once before the fault, so that the parts are sent before the connection ends.
        End::Breaks => Body::from_stream(
            parts
                .chain(stream::once(tokio::task::yield_now()).filter_map(|()| future::ready(None)))
                .chain(stream::once(future::ready(Err(io::Error::other("the connection breaks"))))),
        ),
        End::IsSilent => Body::from_stream(parts.chain(stream::pending())),
    };
    event_stream(body)
}

/// Returns a stream of events with this body.
pub(crate) fn event_stream(body: Body) -> Response {
    ([("content-type", "text/event-stream")], body).into_response()
}

/// Returns a refusal.
pub(crate) fn refusal(status: u16, code: &str, message: &str) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    (status, Json(json!({ "error": { "code": code, "message": message } }))).into_response()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn is_authorized(headers: &HeaderMap) -> bool {
    headers.get("authorization").is_some_and(|value| value == format!("Bearer {TOKEN}").as_str())
}

impl FakeState {
    fn note<T>(&self, change: impl FnOnce(&mut FakeGatewayScript) -> T) -> T {
        let value = change(&mut self.recorded.lock().expect("no panic under the lock"));
        self.change_sender.send_replace(());
        value
    }
}

async fn list(
    State(state): State<Arc<FakeState>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    assert!(is_authorized(&headers));
    let query = query.unwrap_or_default();
    let parameter = |name: &str| {
        let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        pair.map(str::to_owned)
    };
    let (status, from) =
        (parameter("status"), parameter("after").map_or(0, |after| after.parse().expect("a number")));
    let limit: usize = parameter("limit").expect("a limit").parse().expect("a number");
    state.note(|noted| {
        noted.lists.push(query.clone());
        if let Some(response) = noted.list_responses.pop_front() {
            return response;
        }
        let calls: Vec<&Value> =
            noted.calls.iter().filter(|call| call["status"].as_str() == status.as_deref()).collect();
        let items: Vec<&Value> = calls.iter().skip(from).take(limit).copied().collect();
        let next = (from + limit < calls.len()).then(|| (from + limit).to_string());
        Json(json!({ "items": items, "next": next })).into_response()
    })
}

async fn submit(
    State(state): State<Arc<FakeState>>,
    headers: HeaderMap,
    Path(run): Path<String>,
    Json(body): Json<Value>,
) -> Response {
    assert!(is_authorized(&headers));
    let call = body["callId"].clone();
    let response = state.note(|noted| {
        noted.submissions.push((run, body));
        noted.submission_responses.pop_front()
    });
    match response {
        Some(Some(response)) => response,
        Some(None) => {
            // A body that fails before its first byte breaks the connection before the response ends.
            let fault =
                stream::once(future::ready(Err::<Bytes, _>(io::Error::other("the connection breaks"))));
            Body::from_stream(fault).into_response()
        }
        None => Json(json!({ "callId": call, "status": "resolved", "delivery": "inline" })).into_response(),
    }
}

async fn events(
    State(state): State<Arc<FakeState>>,
    headers: HeaderMap,
    Path(agent): Path<String>,
) -> Response {
    assert!(is_authorized(&headers));
    assert_eq!(agent, "agt_1");
    let last = headers.get("last-event-id").map(|value| value.to_str().expect("text").to_owned());
    let response = state.note(|noted| {
        noted.connections.push((Instant::now(), last));
        noted.streams.pop_front()
    });
    response.unwrap_or_else(|| stream([], End::IsSilent))
}

struct MemoryListener(mpsc::UnboundedReceiver<DuplexStream>);

impl axum::serve::Listener for MemoryListener {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(stream) => (stream, ()),
            // All clients were dropped.
            None => future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The client's end of a connection.
struct MemoryStream(DuplexStream);

impl Connection for MemoryStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
