//! HTTP/1.1 over TCP, and over TLS for `https://`.
//!
//! The client is hyper's, over rustls with ring. A higher-level crate such as reqwest would impose its choice
//! of TLS on every program that depends on this crate, because cargo unifies the features of a crate. hyper's
//! client follows no redirect, keeps no cookies and decompresses nothing.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::{
        self,
        connect::{Connect, HttpConnector},
    },
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt as _;

use crate::{ClientError, address::Address};

/// The timeout of one attempt to connect to an address of the host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A response whose head has arrived.
pub(crate) type Response = http::Response<Incoming>;

/// Sends requests: over TCP, or over memory in tests.
pub(crate) trait Transport: Send + Sync {
    /// Sends a request, and waits for the head of its response.
    fn send(&self, request: Request<Full<Bytes>>) -> BoxFuture<'static, Result<Response, legacy::Error>>;
}

impl<C: Connect + Clone + Send + Sync + 'static> Transport for legacy::Client<C, Full<Bytes>> {
    fn send(&self, request: Request<Full<Bytes>>) -> BoxFuture<'static, Result<Response, legacy::Error>> {
        Box::pin(self.request(request))
    }
}

/// Creates the transport to this address.
///
/// # Errors
/// [`ClientError::Tls`] if TLS cannot be set up.
pub(crate) fn transport(address: &Address) -> Result<Box<dyn Transport>, ClientError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls_config(address.needs_tls())?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(pooled_transport(connector))
}

/// Creates a transport over the connections of a connector.
pub(crate) fn pooled_transport<C: Connect + Clone + Send + Sync + 'static>(
    connector: C,
) -> Box<dyn Transport> {
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .build(connector);
    Box::new(client)
}

/// Creates a TLS configuration with the certificates that the machine trusts. An address without TLS needs
/// none, so a container without certificates can reach a gateway on its machine.
fn tls_config(is_needed: bool) -> Result<ClientConfig, ClientError> {
    let tls = |source: rustls::Error| ClientError::Tls { source: source.into() };
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(tls)?;
    if !is_needed {
        return Ok(versions.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    Ok(versions.with_platform_verifier().map_err(tls)?.with_no_client_auth())
}
