//! A request with its redirects, each of which is checked, judged, resolved and dialled anew.

use std::{collections::BTreeSet, sync::Arc};

use rustls::ClientConfig;
use tokio::time::timeout;

use crate::{
    Credential, FetchError, Judge, Request, RequestLimits, Response, address::JudgedAddresses,
    connection::Connection, exchange::exchange, parts, redact, redirect, resolve::Resolver, target::Target,
};

/// Everything that requests need, made before the thread was confined.
pub(crate) struct Client {
    pub(crate) resolver: Resolver,
    pub(crate) tls: Arc<ClientConfig>,
    /// The ports that may be requested. The name servers' ports are not among them, unless they are named.
    pub(crate) ports: BTreeSet<u16>,
}

impl Client {
    /// Makes the request, within the judge's limits.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn fetch(&self, judge: &dyn Judge, request: Request) -> Result<Response, FetchError> {
        let limits = judge.limits();
        match timeout(limits.total, self.follow(judge, &limits, request)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(FetchError::TotalTimeout { limit: limits.total }),
        }
    }

    async fn follow(
        &self,
        judge: &dyn Judge,
        limits: &RequestLimits,
        mut request: Request,
    ) -> Result<Response, FetchError> {
        request.url.set_fragment(None);
        let (mut redirects, mut redacted) = (0, false);
        loop {
            request.check(limits)?;
            let target = Target::of(&request.url, &self.ports)?;
            judge.request(&request.method, &request.url)?;
            parts::refuse_request(judge, &request)?;
            let addresses = JudgedAddresses::of(&target, &self.resolver, judge, limits).await?;
            let connection = Connection::open(&target, &addresses, &self.tls, limits).await?;
            let address = connection.address;
            let attached = credentials_for(judge, &request)?;
            let mut answer = exchange(connection, &target, &request, &attached, limits).await?;
            // Before the headers are read for a redirect: its target could carry the secret on.
            let secrets = judge.known_secrets();
            redacted |= redact::redact_headers(&mut answer.headers, &secrets);
            parts::refuse_response(judge, &request, answer.status, &answer.headers)?;
            redacted |= redact::redact(&mut answer.body, &secrets);
            if !redirect::is_redirect(answer.status, &answer.headers) {
                return Ok(Response {
                    url: request.url,
                    redirects,
                    address,
                    status: answer.status,
                    headers: answer.headers,
                    body: answer.body.into(),
                    wire_bytes: answer.wire_bytes,
                    coding: answer.coding,
                    redacted,
                });
            }
            if redirects == limits.max_redirects {
                return Err(FetchError::TooManyRedirects { limit: limits.max_redirects });
            }
            redirects += 1;
            let from = request.url.clone();
            request = redirect::follow(&request, answer.status, &answer.headers)?;
            judge.redirect(&from, &request.url)?;
        }
    }
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
