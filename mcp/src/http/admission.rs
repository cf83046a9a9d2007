//! Checks each request before it is processed: Host, Origin, token, path, and the size and time of the body.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER,
        WWW_AUTHENTICATE,
    },
    uri::Authority,
};
use http_body_util::{BodyExt as _, Full, Limited, combinators::BoxBody};
use hyper::body::Incoming;
use portcullis_types::CancellationToken;
use rmcp::{
    RoleServer,
    model::{
        ClientRequest, ErrorCode, ErrorData, GetMeta as _, JsonRpcMessage, JsonRpcRequest, ProtocolVersion,
    },
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use tokio::sync::Mutex;

use super::{
    BearerToken, MCP_PATH,
    open_requests::{OpenRequest, OpenRequests},
};
use crate::{
    McpServer,
    limits::McpLimits,
    lines::NO_SESSION,
    session::{ClientPresence, ClientSession},
    wire::{self, Unreadable},
};

/// The type of every HTTP response.
pub(super) type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// The `Retry-After` of a refusal that the client may retry, in seconds.
const RETRY_SECONDS: &str = "10";

/// The header with the id of a request's session.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Access rules: the token, and the allowed host names and origins.
#[derive(Debug)]
pub struct HttpAccess {
    token: BearerToken,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl HttpAccess {
    /// Admits requests that carry the token and address this server as `localhost`, `127.0.0.1` or `[::1]`.
    /// Admits no web page.
    #[must_use]
    pub fn new(token: BearerToken) -> Self {
        let hosts = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
        Self { token, hosts, origins: Vec::new() }
    }

    /// Also admits requests that address the server by these names, on any port.
    #[must_use]
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.hosts.extend(hosts.into_iter().map(|host| host.to_ascii_lowercase()));
        self
    }

    /// Also admits web pages of these origins, such as `http://localhost:6274`.
    #[must_use]
    pub fn origins(mut self, origins: impl IntoIterator<Item = String>) -> Self {
        self.origins.extend(origins.into_iter().map(|origin| origin.to_ascii_lowercase()));
        self
    }

    /// Returns why a request with these headers is refused, if it is. The checks of Host and Origin defeat
    /// DNS rebinding. A page whose name was rebound to this server's address sends its own host, and a
    /// foreign page sends its own origin.
    fn denial_reason(
        &self,
        headers: &HeaderMap,
        authority: Option<&Authority>,
    ) -> Option<(StatusCode, &'static str)> {
        if !self.knows_host(headers, authority) {
            return Some((StatusCode::FORBIDDEN, "the Host header does not name this server"));
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let is_known = |origin: &HeaderValue| {
            origin.to_str().is_ok_and(|origin| self.origins.contains(&origin.to_ascii_lowercase()))
        };
        // `all` is also true without an Origin. Such a request does not come from a web page.
        if !origins.all(is_known) {
            return Some((StatusCode::FORBIDDEN, "the Origin may not call this server"));
        }
        match single_value(headers, AUTHORIZATION) {
            Some(value) if self.token.matches_authorization(value.as_bytes()) => None,
            _ => Some((StatusCode::UNAUTHORIZED, "the token is missing or wrong")),
        }
    }

    fn knows_host(&self, headers: &HeaderMap, authority: Option<&Authority>) -> bool {
        let Some(host) = single_value(headers, HOST) else { return false };
        let Some(host) = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) else {
            return false;
        };
        let is_known = |host: &Authority| {
            // `user@host` is not a valid Host.
            !host.as_str().contains('@') && self.hosts.contains(&host.host().to_ascii_lowercase())
        };
        // The request line may also name a host. It must be known too.
        is_known(&host) && authority.is_none_or(is_known)
    }
}

/// Returns the value of a header that must occur exactly once. Refuses duplicates: a proxy could use the
/// first value and this server the second.
fn single_value(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Admission control in front of the protocol's service.
pub(super) struct Gate {
    access: HttpAccess,
    limits: McpLimits,
    sessions: Arc<LocalSessionManager>,
    /// Held while a session is created, so that two requests cannot both create the last allowed one.
    session_creation: Mutex<()>,
    open_requests: OpenRequests,
    /// Cancelled when the server must stop.
    stop: CancellationToken,
    service: StreamableHttpService<ClientSession, LocalSessionManager>,
}

impl Gate {
    pub(super) fn new(
        server: &McpServer,
        access: HttpAccess,
        config: StreamableHttpServerConfig,
        stop: CancellationToken,
    ) -> Self {
        let limits = server.limits().clone();
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(limits.idle_timeout);
        sessions.session_config.init_timeout = Some(limits.initialize_timeout);
        let sessions = Arc::new(sessions);
        let (served, stop_signal) = (server.clone(), stop.clone());
        let config = config
            .with_max_request_body_bytes(limits.max_message_bytes)
            .with_allowed_hosts(access.hosts.clone())
            .with_allowed_origins(access.origins.clone())
            .enforce_origin_validation();
        let service = StreamableHttpService::new(
            move || {
                let presence =
                    ClientPresence { disconnected: stop_signal.child_token(), ..ClientPresence::default() };
                served.session(presence).map_err(std::io::Error::other)
            },
            Arc::clone(&sessions),
            config,
        );
        let (session_creation, open_requests) = (Mutex::new(()), OpenRequests::default());
        Self { access, limits, sessions, session_creation, open_requests, stop, service }
    }

    /// Waits until all requests of sessions are answered.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub(super) async fn wait_until_answered(&self) {
        self.open_requests.wait_until_empty().await;
    }

    /// Answers one request.
    ///
    /// # Cancellation
    /// Cancel-safe. A call that the request started continues until its session ends.
    pub(super) async fn respond(&self, request: Request<Incoming>) -> HttpResponse {
        // Refuse before reading any byte of the body.
        if let Some(response) = self.refuse_by_head(&request) {
            return response;
        }
        let (head, body) = request.into_parts();
        let mut body = match self.read_body(body).await {
            Ok(body) => body,
            Err((status, reason)) => return refusal_response(status, reason),
        };
        let mut request = Request::from_parts(head, ());
        let mut open_request = None;
        // The protocol's service refuses other content types.
        if request.method() == Method::POST && is_json(request.headers()) {
            (body, open_request) = match self.admit(&mut request, body) {
                Ok(admitted) => admitted,
                Err(unreadable) => return unreadable_answer(unreadable),
            };
        }
        let makes_session = request.method() == Method::POST && !request.headers().contains_key(SESSION);
        let request = request.map(|()| Full::new(body));
        if makes_session { self.make_session(request).await } else { self.serve(request, open_request).await }
    }

    /// Returns the refusal of a request because of its headers or path, or because the server is stopping.
    fn refuse_by_head(&self, request: &Request<Incoming>) -> Option<HttpResponse> {
        // Check the token first: without it, a client learns neither the paths nor that the server is
        // stopping.
        if let Some((status, reason)) =
            self.access.denial_reason(request.headers(), request.uri().authority())
        {
            tracing::info!("a request was refused: {reason}");
            return Some(refusal_response(status, reason));
        }
        if request.uri().path() != MCP_PATH {
            return Some(refusal_response(StatusCode::NOT_FOUND, "unknown path; use /mcp"));
        }
        self.stop.is_cancelled().then(|| busy_response("the server is shutting down"))
    }

    /// Reads a whole body, within the limits of size and time.
    async fn read_body(&self, body: Incoming) -> Result<Bytes, (StatusCode, &'static str)> {
        let body = Limited::new(body, self.limits.max_message_bytes).collect();
        match tokio::time::timeout(self.limits.request_timeout, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err((StatusCode::PAYLOAD_TOO_LARGE, "the message is too long"))
            }
            Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the request body is incomplete")),
            Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the request took too long")),
        }
    }

    /// Decodes a message and registers its id. Returns the message's text for the protocol, and the guard
    /// that reserves the id. There is no guard if the message is not a request or has no session.
    fn admit(
        &self,
        request: &mut Request<()>,
        body: Bytes,
    ) -> Result<(Bytes, Option<Arc<OpenRequest>>), Unreadable> {
        let wire::DecodedMessage { message, text } = wire::decode(&body)?;
        let session = request.headers().get(SESSION);
        // Check this before registering the id: a request outside a session registers none.
        require_session(session, &message)?;
        let open_request = self.open_requests.begin(session, &message)?;
        // The call keeps the guard too, so the id stays reserved even if the connection breaks.
        request.extensions_mut().insert(open_request.clone());
        request.extensions_mut().insert(wire::raw_arguments(&message));
        Ok((text.map_or(body, Bytes::from), open_request))
    }

    /// Serves a request of a session.
    async fn serve(
        &self,
        request: Request<Full<Bytes>>,
        open_request: Option<Arc<OpenRequest>>,
    ) -> HttpResponse {
        let ends_session = request.method() == Method::DELETE;
        let mut response = self.service.handle(request).await;
        // The protocol does not define the status for the end of a session. Some clients accept only 200 and
        // 204.
        if ends_session && response.status() == StatusCode::ACCEPTED {
            response = Response::new(Full::default().boxed());
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        // The closure holds the guard until the response's body was sent or dropped.
        response.map(|body| {
            let hold_until_answered = move |frame| {
                let _until_answered = &open_request;
                frame
            };
            body.map_frame(hold_until_answered).boxed()
        })
    }

    /// Serves a request that creates a session, if the limit allows one.
    async fn make_session(&self, request: Request<Full<Bytes>>) -> HttpResponse {
        // Hold the lock until the response is ready: `sessions` has the new session only then.
        let _creating = self.session_creation.lock().await;
        if self.sessions.sessions.read().await.len() >= self.limits.max_sessions {
            let Self { limits: McpLimits { max_sessions: sessions, idle_timeout: idle, .. }, .. } = self;
            let idle = humantime::format_duration(*idle);
            return busy_response(&format!(
                "there are {sessions} sessions, which is the limit: end one by DELETE, or wait until one was \
                 idle for {idle}"
            ));
        }
        self.service.handle(request).await
    }
}

/// Returns a refusal that the client may retry later.
fn busy_response(reason: &str) -> HttpResponse {
    let mut response = refusal_response(StatusCode::SERVICE_UNAVAILABLE, reason);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
    response
}

/// Returns a refusal of a request. It closes the connection, so the rest of the request is not read.
pub(super) fn refusal_response(status: StatusCode, reason: &str) -> HttpResponse {
    let body = Full::new(Bytes::from(format!("{reason}\n"))).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Refuses a request outside a session, because approvals, stored outputs and the limit of calls belong to
/// sessions. A future revision has requests without sessions. Its clients begin a session when they learn
/// that `server/discover` does not exist.
fn require_session(
    session: Option<&HeaderValue>,
    message: &RxJsonRpcMessage<RoleServer>,
) -> Result<(), Unreadable> {
    let JsonRpcMessage::Request(JsonRpcRequest { id, request, .. }) = message else { return Ok(()) };
    let meta = request.get_meta();
    let is_standalone = meta.protocol_version().is_some()
        || meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
    let error = match request {
        ClientRequest::InitializeRequest(_) => return Ok(()),
        ClientRequest::DiscoverRequest(_) => {
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "server/discover", None)
        }
        _ if session.is_some() && !is_standalone => return Ok(()),
        _ => ErrorData::invalid_request(NO_SESSION, None),
    };
    Err(Unreadable { id: Some(id.clone()), error })
}

/// Returns whether the content type is JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// Returns the response to an unreadable message: the protocol's error, with status 400.
fn unreadable_answer(unreadable: Unreadable) -> HttpResponse {
    let Unreadable { id, error } = unreadable;
    let message: TxJsonRpcMessage<RoleServer> = JsonRpcMessage::error(error, id);
    let Ok(text) = serde_json::to_vec(&message) else {
        return refusal_response(StatusCode::BAD_REQUEST, "this is not a message of the protocol");
    };
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> HttpAccess {
        let state = tempfile::tempdir().expect("a folder");
        let file = state.path().join("token");
        std::fs::write(&file, "t".repeat(32)).expect("written");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, private).expect("set");
        let token = BearerToken::read(&file).expect("a token");
        HttpAccess::new(token)
            .hosts(["Tools.Example".to_owned()])
            .origins(["http://localhost:6274".to_owned()])
    }

    #[track_caller]
    fn check(headers: &[(&str, &str)], expected: Option<u16>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            map.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        let refused = access().denial_reason(&map, None).map(|(status, _)| status.as_u16());
        assert_eq!(refused, expected, "{headers:?}");
    }

    #[test]
    fn host_origin_and_token_must_all_be_right() {
        let token = format!("Bearer {}", "t".repeat(32));
        let right = ("authorization", token.as_str());
        for host in ["localhost", "localhost:8808", "127.0.0.1:1", "[::1]:8808", "LOCALHOST", "tools.example"]
        {
            check(&[("host", host), right], None);
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "evil.example:8808",
            "",
            "localhost@evil.example",
            "evil.example@localhost",
            "0.0.0.0",
            "127.0.0.1.evil.example",
        ] {
            check(&[("host", host), right], Some(403));
        }
        check(&[right], Some(403));
        check(&[("host", "localhost"), ("host", "evil.example"), right], Some(403));
        check(&[("host", "localhost"), ("origin", "http://localhost:6274"), right], None);
        for origin in ["http://evil.example", "null", "http://localhost", "https://localhost:6274", "file://"]
        {
            check(&[("host", "localhost"), ("origin", origin), right], Some(403));
        }
        check(&[("host", "localhost")], Some(401));
        check(&[("host", "localhost"), ("authorization", "Bearer wrong")], Some(401));
        check(&[("host", "localhost"), right, right], Some(401));
    }
}
