//! A request with its redirects, each of which is checked, judged, resolved and dialled anew.
//!
//! A request whose grant has left a connection to its origin takes that one: its address is judged anew, and its name
//! is not asked again.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use http::{HeaderMap, Method, StatusCode};
use rustls::ClientConfig;
use tokio::time::timeout;
use url::Url;

use crate::{
    ContentCoding, Credential, FetchError, Judge, Limits, Request, Response,
    connection::Connection,
    exchange::{self, BodyReader, Form, Head, outgoing},
    pool::{Pool, PoolKey},
    proxy::Proxy,
    redact, redirect,
    resolve::Resolver,
    route::{self, Route},
    target::Target,
};

/// Everything that requests need, made before the thread was confined, and the connections that they leave.
pub(crate) struct Client {
    pub(crate) resolver: Resolver,
    pub(crate) tls: Arc<ClientConfig>,
    /// The ports that may be requested. The name servers' ports are not among them, unless they are named.
    pub(crate) ports: BTreeSet<u16>,
    /// The proxy of all connections, if there is one.
    pub(crate) proxy: Option<Proxy>,
    pub(crate) pool: Pool,
}

/// A response whose body is not read yet. Secrets are taken out of its headers.
pub(crate) struct Opened<'c> {
    pub(crate) url: Url,
    pub(crate) redirects: u32,
    pub(crate) address: SocketAddr,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) coding: ContentCoding,
    pub(crate) redacted: bool,
    pub(crate) body: BodyReader<'c>,
}

impl Client {
    /// Makes the request, within the judge's limits.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn fetch(&self, judge: &dyn Judge, request: Request) -> Result<Response, FetchError> {
        let limits = judge.limits();
        let whole = async { self.open(judge, &limits, request).await?.collect(judge.credentials()).await };
        match timeout(limits.total, whole).await {
            Ok(result) => result,
            Err(_elapsed) => Err(FetchError::TotalTimeout { limit: limits.total }),
        }
    }

    /// Makes the request up to the head of the last response.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn open(
        &self,
        judge: &dyn Judge,
        limits: &Limits,
        mut request: Request,
    ) -> Result<Opened<'_>, FetchError> {
        request.url.set_fragment(None);
        let (mut redirects, mut redacted) = (0, false);
        loop {
            request.check(limits)?;
            let target = Target::of(&request.url, &self.ports)?;
            judge.request(&request.method, &request.url)?;
            let (address, mut head, body) = self.ask(judge, &target, limits, &request).await?;
            // Before the headers are read for a redirect: its target could carry the secret on.
            redacted |= redact::redact_headers(&mut head.headers, judge.credentials());
            if !redirect::is_redirect(head.status, &head.headers) {
                let Head { status, headers, coding } = head;
                let url = request.url;
                return Ok(Opened { url, redirects, address, status, headers, coding, redacted, body });
            }
            if redirects == limits.max_redirects {
                return Err(FetchError::TooManyRedirects { limit: limits.max_redirects });
            }
            redirects += 1;
            let from = request.url.clone();
            request = redirect::follow(&request, head.status, &head.headers)?;
            judge.redirect(&from, &request.url)?;
        }
    }

    /// Sends one judged request over a kept connection or a new one, and reads the head of its response.
    async fn ask(
        &self,
        judge: &dyn Judge,
        target: &Target,
        limits: &Limits,
        request: &Request,
    ) -> Result<(SocketAddr, Head, BodyReader<'_>), FetchError> {
        let key = judge.grant_key().map(|grant| PoolKey::of(grant, target, limits));
        let (mut connection, mut is_kept) = match self.kept(judge, target, request, key.as_ref())? {
            Some(kept) => (kept, true),
            None => (self.connect(judge, target, limits).await?, false),
        };
        let attached = credentials_for(judge, request)?;
        let form = route::form(self, target);
        loop {
            let before = connection.received();
            let outgoing = outgoing(target, request, &attached, form, key.is_some());
            let (mut head, body) = match exchange::send(&mut connection, target, outgoing, limits).await {
                // The server has closed while the connection was idle, or spoke unasked. Once more, on a new one: the
                // method is idempotent, and no byte of an answer has come (RFC 9110, section 9.2.2).
                Err(FetchError::ResponseTruncated { .. } | FetchError::ResponseInvalid { .. })
                    if is_kept && connection.received() == before =>
                {
                    connection = self.connect(judge, target, limits).await?;
                    is_kept = false;
                    continue;
                }
                sent => sent?,
            };
            if form == Form::Absolute && head.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
                // No origin answers so (RFC 9110, section 15.5.8).
                return Err(FetchError::ProxyRefused {
                    host: target.host.clone(),
                    status: head.status.as_u16(),
                });
            }
            let (address, kept) = (connection.address, key.map(|key| (&self.pool, key)));
            let body = BodyReader::new(connection, (&mut head, body), (target, request), kept, limits)?;
            return Ok((address, head, body));
        }
    }

    /// A connection of the request's grant to its origin, with its address judged anew. A method that is not idempotent
    /// has a connection of its own: where the server closes an idle connection just then, it would stay unknown whether
    /// it has acted on the request.
    fn kept(
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
        route::judge_kept(self, target, judge, connection.address)?;
        Ok(Some(connection))
    }

    async fn connect(
        &self,
        judge: &dyn Judge,
        target: &Target,
        limits: &Limits,
    ) -> Result<Connection, FetchError> {
        let route = Route::of(self, target, judge, limits).await?;
        let connected = route.connect(target, limits).await?;
        Connection::open(connected, target, &self.tls, limits).await
    }
}

impl Opened<'_> {
    /// Reads the body, and takes secrets out of it.
    async fn collect(mut self, credentials: &[Credential]) -> Result<Response, FetchError> {
        let mut body = Vec::new();
        while let Some(piece) = self.body.next().await? {
            match body.is_empty() {
                true => body = piece,
                false => body.extend_from_slice(&piece),
            }
        }
        let redacted = self.redacted | redact::redact(&mut body, credentials);
        let Self { url, redirects, address, status, headers, coding, body: reader, .. } = self;
        let (body, wire_bytes) = (body.into(), reader.wire_bytes);
        Ok(Response { url, redirects, address, status, headers, body, wire_bytes, coding, redacted })
    }
}

/// RFC 9110, section 9.2.2. Methods of other specifications are not known to be.
fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::PUT | Method::DELETE | Method::OPTIONS)
}

/// The credentials of one request. A header that the tool has set itself is refused: a server could take either.
fn credentials_for<'j>(judge: &'j dyn Judge, request: &Request) -> Result<Vec<&'j Credential>, FetchError> {
    let mut attached: Vec<&Credential> = Vec::new();
    for credential in judge.credentials() {
        let name = credential.header();
        if judge.attaches(credential, &request.url) {
            if request.headers.contains_key(name) || attached.iter().any(|other| other.header() == name) {
                return Err(FetchError::HeaderForbidden { name: name.clone() });
            }
            attached.push(credential);
        }
    }
    attached.iter().for_each(|credential| judge.attached(credential));
    Ok(attached)
}
