//! [`Gateway`]: the requests of a program that answers calls.

use std::{fmt, pin::Pin, sync::Arc, task, time::Duration};

use bytes::Bytes;
use futures_util::{
    Stream, TryStreamExt as _,
    stream::{self, BoxStream},
};
use http::{
    HeaderValue, Method, Request, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::{
    Call, ClientError, EventStream, Submission,
    address::{Address, PlainHttp, check_id},
    events,
    secret::Token,
    submission::{AcceptedResult, SubmittedResult},
    transport::{self, Response, Transport},
};

#[cfg(test)]
mod tests;

/// The timeout of a request and its response. For a stream of events, it ends with the response's head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum size of a submission, in bytes, which is the gateway's limit. The gateway would refuse a
/// larger one while it is being sent, and the refusal would look like a lost connection.
const MAX_SUBMISSION_BYTES: usize = 1 << 20;

/// The number of calls in a page. The arguments of a single call can have 1 MiB.
const PAGE_CALLS: &str = "20";

/// The maximum size of a response, in bytes. It keeps a server that poses as the gateway from filling the
/// memory.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// The maximum number of bytes that are read of a refusal.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// The statuses of calls that accept a result. A call can change from the first to the second, but not back.
const OPEN: [&str; 2] = ["waiting", "pending"];

/// The header with the id of the last event that the reader got.
const LAST_EVENT_ID: &str = "last-event-id";

/// A gateway, accessed with a token. Clones share its connections.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    address: Address,
    token: Token,
    authorization: HeaderValue,
    transport: Box<dyn Transport>,
}

/// The calls of [`Gateway::open_calls`]. The stream requests a page when the previous one has been read. It
/// ends after an error.
pub struct CallStream<'a> {
    calls: BoxStream<'a, Result<Call, ClientError>>,
}

/// A page of calls.
#[derive(Deserialize)]
struct Page {
    items: Vec<Call>,
    next: Option<String>,
}

/// The body of a refusal.
#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorDetails,
}

#[derive(Deserialize)]
struct ErrorDetails {
    code: String,
    message: String,
}

impl Gateway {
    /// Creates a client of the gateway at this address, with a token of the agent or of one run. The address
    /// is the part before `/api`, such as `https://gateway.example` or `http://127.0.0.1:8810`. `http://` is
    /// accepted only for this machine: `localhost` and loopback addresses.
    ///
    /// Does not connect yet.
    ///
    /// # Errors
    /// [`ClientError::NoUrl`], [`ClientError::Address`], [`ClientError::PlainHttp`] and [`ClientError::Token`] for
    /// values that cannot be used, and [`ClientError::Tls`] if the machine's certificates cannot be read.
    pub fn new(url: &str, token: &str) -> Result<Self, ClientError> {
        Self::checked(url, token, PlainHttp::OnThisMachine)
    }

    /// Like [`new`](Self::new), but accepts `http://` with any host. Every machine on the way can then read
    /// and change the token, the arguments of calls and their results. Use it only in isolated networks, such
    /// as one between the containers of one machine.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new) except [`ClientError::PlainHttp`].
    pub fn new_allowing_plain_http(url: &str, token: &str) -> Result<Self, ClientError> {
        Self::checked(url, token, PlainHttp::Everywhere)
    }

    fn checked(url: &str, token: &str, plain: PlainHttp) -> Result<Self, ClientError> {
        let address = Address::new(url, plain)?;
        let transport = transport::transport(&address)?;
        Self::with_transport(address, token, transport)
    }

    pub(crate) fn with_transport(
        address: Address,
        token: &str,
        transport: Box<dyn Transport>,
    ) -> Result<Self, ClientError> {
        let token = Token::new(token)?;
        let authorization = token.authorization()?;
        Ok(Self { inner: Arc::new(Inner { address, token, authorization, transport }) })
    }

    /// Submits the result of a call: any value that serializes to JSON. Submitting the same result again is
    /// safe, because the gateway accepts it only once.
    ///
    /// # Errors
    /// [`ClientError::NotJson`] and [`ClientError::ResultTooLarge`] (over 1 MiB) for a result that cannot be
    /// sent, and the errors of a request. A refusal about the call itself is not an error but a
    /// [`Submission`].
    ///
    /// # Cancellation
    /// If the future is dropped, the gateway may or may not have accepted the result.
    pub async fn submit<R: Serialize + ?Sized>(
        &self,
        run_id: &str,
        call_id: &str,
        result: &R,
    ) -> Result<Submission, ClientError> {
        check_id("run", run_id)?;
        check_id("call", call_id)?;
        let body = serde_json::to_vec(&SubmittedResult { call_id, result })
            .map_err(|source| ClientError::NotJson { source })?;
        if body.len() > MAX_SUBMISSION_BYTES {
            return Err(ClientError::ResultTooLarge { limit_bytes: MAX_SUBMISSION_BYTES });
        }
        let uri = self.inner.address.uri(&["api", "runs", run_id, "tool-results"], &[])?;
        let mut request = self.request(Method::POST, uri, body.into());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.json::<AcceptedResult>(request).await {
            Ok(taken) => Ok(Submission::Delivered(taken.delivery)),
            Err(ClientError::Refused { status, code, message }) => {
                let judged = Submission::of_refusal(status, &code);
                judged.ok_or(ClientError::Refused { status, code, message })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the calls of an agent that accept a result: first those that a run waits for, then those whose
    /// runs have continued. A call that changes from the first group to the second in the meantime can occur
    /// twice.
    ///
    /// The stream yields the errors of a request.
    #[must_use]
    pub fn open_calls<'a>(&'a self, agent_id: &'a str) -> CallStream<'a> {
        /// The position in the listing: an index of [`OPEN`], and the cursor of the next page.
        type Position = (usize, Option<String>);
        let pages = stream::try_unfold((0, None), move |(index, after): Position| async move {
            let Some(status) = OPEN.get(index) else { return Ok(None) };
            let page = self.page(agent_id, status, after.as_deref()).await?;
            let next = match page.next {
                Some(next) => (index, Some(next)),
                None => (index + 1, None),
            };
            let calls = stream::iter(page.items.into_iter().map(|call| call.checked("response")));
            Ok(Some((calls, next)))
        });
        CallStream { calls: Box::pin(pages.try_flatten()) }
    }

    async fn page(&self, agent: &str, status: &str, after: Option<&str>) -> Result<Page, ClientError> {
        check_id("agent", agent)?;
        let mut query = vec![("agentId", agent), ("status", status), ("limit", PAGE_CALLS)];
        query.extend(after.map(|after| ("after", after)));
        let uri = self.inner.address.uri(&["api", "calls"], &query)?;
        self.json(self.request(Method::GET, uri, Bytes::new())).await
    }

    /// Connects to the events of an agent: those from now on, or those after the event with this id. The
    /// future completes when the gateway has answered. No event after that is missed.
    ///
    /// # Errors
    /// [`ClientError::Id`], [`ClientError::Unreadable`] if the response is not a stream of events, and the errors of a
    /// request.
    ///
    /// # Cancellation
    /// Dropping the future, or the stream, closes the connection.
    pub async fn events(
        &self,
        agent_id: &str,
        last_event_id: Option<&str>,
    ) -> Result<EventStream, ClientError> {
        check_id("agent", agent_id)?;
        let uri = self.inner.address.uri(&["api", "agents", agent_id, "events"], &[])?;
        let mut request = self.request(Method::GET, uri, Bytes::new());
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event_id {
            check_id("event", id)?;
            // Drop the source: it only says that a character is wrong.
            let id = HeaderValue::from_str(id).map_err(|_invalid| ClientError::Id { subject: "event" })?;
            request.headers_mut().insert(LAST_EVENT_ID, id);
        }
        let response = within_time(self.send(request)).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Err(ClientError::unreadable("response", "its content type is not `text/event-stream`"));
        }
        Ok(events::of_body(response.into_body()))
    }

    fn request(&self, method: Method, uri: Uri, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let agent = HeaderValue::from_static(concat!("portcullis-client/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        request.headers_mut().insert(AUTHORIZATION, self.inner.authorization.clone());
        request
    }

    /// Sends a request, and parses its response as JSON.
    async fn json<T: DeserializeOwned>(&self, request: Request<Full<Bytes>>) -> Result<T, ClientError> {
        within_time(async {
            let response = self.send(request).await?;
            let body = read(response.into_body(), MAX_RESPONSE_BYTES).await?;
            serde_json::from_slice(&body).map_err(|source| ClientError::unreadable("response", source))
        })
        .await
    }

    /// Sends a request, and returns a response that is neither a refusal nor a redirect.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response, ClientError> {
        let response = self.inner.transport.send(request).await.map_err(ClientError::connection)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            return Err(ClientError::Redirected { status: status.as_u16() });
        }
        // Report a refusal even if its body cannot be read.
        let body = read(response.into_body(), MAX_REFUSAL_BYTES).await.unwrap_or_default();
        let reason = match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(refusal) => refusal.error,
            Err(_) => ErrorDetails {
                code: "unknown".to_owned(),
                message: String::from_utf8_lossy(&body).into_owned(),
            },
        };
        Err(ClientError::Refused {
            status: status.as_u16(),
            code: self.inner.token.clean(&reason.code),
            message: self.inner.token.clean(&reason.message),
        })
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("address", &self.inner.address.as_str()).finish_non_exhaustive()
    }
}

impl Stream for CallStream<'_> {
    type Item = Result<Call, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> task::Poll<Option<Self::Item>> {
        self.calls.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for CallStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallStream").finish_non_exhaustive()
    }
}

async fn within_time<T>(future: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    match timeout(REQUEST_TIMEOUT, future).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Err(ClientError::TimedOut { after: REQUEST_TIMEOUT }),
    }
}

/// Reads a body of at most this many bytes.
async fn read(body: Incoming, limit_bytes: usize) -> Result<Bytes, ClientError> {
    match Limited::new(body, limit_bytes).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(ClientError::TooLarge { subject: "response", limit_bytes })
        }
        Err(error) => Err(ClientError::connection(error)),
    }
}
