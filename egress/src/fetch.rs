//! A request with its redirects. Each redirect is checked, judged, resolved and dialled like the first
//! request.
//!
//! A request reuses an idle connection of its grant to the same origin. The connection's address is judged
//! again, but the name is not resolved again.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use http::{HeaderMap, Method, StatusCode};
use rustls::ClientConfig;
use tokio::time::timeout;
use url::Url;

use crate::{
    ContentCoding, Credential, FetchError, Judge, Request, RequestLimits, Response,
    connection::Connection,
    exchange::{self, BodyReader, RequestTargetForm, ResponseHead, build_request},
    partial_response,
    pool::{ConnectionPool, PoolKey},
    proxy::Proxy,
    redact, redirect,
    resolve::Resolver,
    route::{self, Route},
    target::Target,
};

/// The HTTP client of one thread. It holds the connection pool and everything else that requests need,
/// created before the thread is confined.
pub(crate) struct FetchClient {
    pub(crate) resolver: Resolver,
    pub(crate) tls: Arc<ClientConfig>,
    /// The ports that requests may go to. The port of a name server is among them only if the settings list
    /// it.
    pub(crate) ports: BTreeSet<u16>,
    /// The proxy of all connections, if there is one.
    pub(crate) proxy: Option<Proxy>,
    pub(crate) pool: ConnectionPool,
}

/// A response with redacted headers and an unread body.
pub(crate) struct OpenResponse<'c> {
    pub(crate) url: Url,
    pub(crate) redirects: u32,
    pub(crate) address: SocketAddr,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) coding: ContentCoding,
    pub(crate) redacted: bool,
    pub(crate) body: BodyReader<'c>,
}

impl FetchClient {
    /// Makes the request within the judge's limits, and reads the response's body.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn fetch(&self, judge: &dyn Judge, request: Request) -> Result<Response, FetchError> {
        let limits = judge.limits();
        let whole_fetch = async { self.open(judge, &limits, request).await?.collect(judge).await };
        match timeout(limits.total_timeout, whole_fetch).await {
            Ok(result) => result,
            Err(_elapsed) => Err(FetchError::TotalTimeout { limit: limits.total_timeout }),
        }
    }

    /// Makes the request, follows its redirects, and returns the last response with its body unread.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn open(
        &self,
        judge: &dyn Judge,
        limits: &RequestLimits,
        mut request: Request,
    ) -> Result<OpenResponse<'_>, FetchError> {
        request.url.set_fragment(None);
        let (mut redirects, mut redacted) = (0, false);
        loop {
            request.check(limits)?;
            let target = Target::parse(&request.url, &self.ports)?;
            judge.judge_request(&request.method, &request.url)?;
            partial_response::check_request(judge, &request)?;
            let (address, mut head, body) = self.exchange(judge, &target, limits, &request).await?;
            // Redact before following a redirect, whose target could carry the secret further.
            redacted |= redact::redact_headers(&mut head.headers, &judge.known_secrets());
            partial_response::check_response(judge, &request, head.status, &head.headers)?;
            if !redirect::is_redirect(head.status, &head.headers) {
                let ResponseHead { status, headers, coding } = head;
                let url = request.url;
                return Ok(OpenResponse { url, redirects, address, status, headers, coding, redacted, body });
            }
            if redirects == limits.max_redirects {
                return Err(FetchError::TooManyRedirects { limit: limits.max_redirects });
            }
            redirects += 1;
            let previous_url = request.url.clone();
            request = redirect::follow(&request, head.status, &head.headers)?;
            judge.judge_redirect(&previous_url, &request.url)?;
        }
    }

    /// Sends one judged request over an idle connection or a new one, and reads the head of its response.
    async fn exchange(
        &self,
        judge: &dyn Judge,
        target: &Target,
        limits: &RequestLimits,
        request: &Request,
    ) -> Result<(SocketAddr, ResponseHead, BodyReader<'_>), FetchError> {
        let key = judge.pool_identity().map(|identity| PoolKey::new(identity, target, limits));
        let (mut connection, mut is_kept) = match self.take_from_pool(judge, target, request, key.as_ref())? {
            Some(connection) => (connection, true),
            None => (self.connect(judge, target, limits).await?, false),
        };
        let attached = credentials_for(judge, request)?;
        let form = route::form(self, target);
        loop {
            let received_before = connection.bytes_received();
            let outgoing = build_request(target, request, &attached, form, key.is_some(), limits);
            let (mut head, body) = match exchange::send(&mut connection, target, outgoing, limits).await {
                // The server closed the idle connection, or sent bytes without a request. Retry once on a new
                // connection: the method is idempotent, and no byte of a response has arrived (RFC 9110,
                // section 9.2.2).
                Err(FetchError::ResponseTruncated { .. } | FetchError::ResponseInvalid { .. })
                    if is_kept && connection.bytes_received() == received_before =>
                {
                    connection = self.connect(judge, target, limits).await?;
                    is_kept = false;
                    continue;
                }
                sent => sent?,
            };
            if form == RequestTargetForm::Absolute && head.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
            {
                // Only a proxy answers with this status (RFC 9110, section 15.5.8).
                return Err(FetchError::ProxyRefused {
                    host: target.host.clone(),
                    status: head.status.as_u16(),
                });
            }
            let (address, return_to_pool) = (connection.address, key.map(|key| (&self.pool, key)));
            let body = BodyReader::new(connection, &mut head, body, target, request, return_to_pool, limits)?;
            return Ok((address, head, body));
        }
    }

    /// Takes an idle connection of the grant to this origin, and has its address judged again. A method that
    /// is not idempotent gets a new connection: if the server closed an idle connection at that point, the
    /// client could not tell whether the server has acted on the request.
    fn take_from_pool(
        &self,
        judge: &dyn Judge,
        target: &Target,
        request: &Request,
        key: Option<&PoolKey>,
    ) -> Result<Option<Connection>, FetchError> {
        let Some(connection) =
            key.filter(|_| is_idempotent(&request.method)).and_then(|key| self.pool.take(key))
        else {
            return Ok(None);
        };
        route::judge_pooled(self, target, judge, connection.address)?;
        judge.on_dialled(connection.address);
        Ok(Some(connection))
    }

    async fn connect(
        &self,
        judge: &dyn Judge,
        target: &Target,
        limits: &RequestLimits,
    ) -> Result<Connection, FetchError> {
        let route = Route::judge(self, target, judge, limits).await?;
        let connected = route.connect(target, limits).await;
        match &connected {
            Ok((address, _)) | Err(FetchError::ConnectFailed { address, .. }) => judge.on_dialled(*address),
            Err(_) => {}
        }
        let connected = connected?;
        Connection::open(connected, target, &self.tls, limits).await
    }
}

impl OpenResponse<'_> {
    /// Reads the whole body and redacts it.
    async fn collect(mut self, judge: &dyn Judge) -> Result<Response, FetchError> {
        let mut body = Vec::new();
        while let Some(piece) = self.body.next().await? {
            body.extend_from_slice(&piece);
        }
        let redacted = self.redacted | redact::redact(&mut body, &judge.known_secrets());
        let Self { url, redirects, address, status, headers, coding, body: reader, .. } = self;
        let (body, wire_bytes) = (body.into(), reader.wire_bytes);
        Ok(Response { url, redirects, address, status, headers, body, wire_bytes, coding, redacted })
    }
}

/// Returns whether a method is idempotent (RFC 9110, section 9.2.2). Methods of other specifications count as
/// not idempotent.
fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::PUT | Method::DELETE | Method::OPTIONS)
}

/// Returns the credentials of one request, and reports each to the judge.
///
/// # Errors
/// [`FetchError::HeaderForbidden`] if a header would be sent twice: a server could take either value.
fn credentials_for<'j>(judge: &'j dyn Judge, request: &Request) -> Result<Vec<&'j Credential>, FetchError> {
    let mut attached: Vec<&Credential> = Vec::new();
    for credential in judge.credentials() {
        let name = credential.header();
        if judge.should_attach(credential, &request.url) {
            if request.headers.contains_key(name)
                || attached.iter().any(|credential| credential.header() == name)
            {
                return Err(FetchError::HeaderForbidden { name: name.clone() });
            }
            attached.push(credential);
        }
    }
    attached.iter().for_each(|credential| judge.on_attached(credential));
    Ok(attached)
}
