//! The HTTP client: trusted certificates, no redirects, proxies.
//!
//! The client is hyper's, over rustls. A higher-level crate would impose its choice of TLS on every program
//! that embeds this crate, because cargo unifies the features of a crate. For example, reqwest's
//! `rustls-no-provider` makes each plain `reqwest::Client::new()` of such a program panic.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Uri,
    header::{PROXY_AUTHORIZATION, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::{legacy, proxy::matcher::Matcher},
    rt::{TokioExecutor, TokioTimer},
};
use portcullis_egress::{Dialler, DiallerSettings};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;
use url::Url;

use super::{
    ProviderSettings,
    connector::{Connector, TcpConnector},
    settings,
};
use crate::{ProviderError, ProviderErrorKind};

/// How long an idle connection is kept for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A response whose head has arrived. [`next_chunk`] reads its body.
pub(super) type Response = http::Response<Incoming>;

/// A client for one address.
#[derive(Debug)]
pub(super) struct ProviderClient {
    client: legacy::Client<Connector, Full<Bytes>>,
    /// The `Proxy-Authorization` of a proxy that forwards plain requests.
    proxy_authorization: Option<HeaderValue>,
}

/// Creates a client for one address.
///
/// The client follows no redirect, because a redirect would take the key and the conversation to another
/// host. It uses a proxy from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), but
/// never for an address of this machine. It uses only HTTP/1.1: abandoning a response then closes its
/// connection, so the server stops its work too.
///
/// A confined thread opens the client's connections ([`portcullis_egress::Dialler`]).
pub(super) fn client(address: &Url, settings: &ProviderSettings) -> Result<ProviderClient, ProviderError> {
    let proxies = (!settings::is_this_machine(address)).then(Matcher::from_env);
    client_through(proxies.as_ref(), address, settings)
}

/// Does the work of [`client`], with the given proxies.
fn client_through(
    proxies: Option<&Matcher>,
    address: &Url,
    settings: &ProviderSettings,
) -> Result<ProviderClient, ProviderError> {
    let connect_timeout = settings.limits.connect_timeout;
    let proxy = proxies.and_then(|proxies| proxies.intercept(&uri(address).ok()?));
    let is_tls = |uri: &Uri| uri.scheme_str() == Some("https");
    let needs_trust = address.scheme() == "https" || proxy.as_ref().is_some_and(|proxy| is_tls(proxy.uri()));
    let tls = Arc::new(tls_config(needs_trust)?);
    let mut proxy_authorization = None;
    // With a proxy, connections go only to the proxy.
    let origin = match &proxy {
        Some(proxy) => Url::parse(&proxy.uri().to_string()).map_err(|error| {
            configuration_error("the proxy of the environment is not a URL").with_source(error)
        })?,
        None => address.clone(),
    };
    let tcp = TcpConnector::new(Dialler::new(
        [&origin],
        DiallerSettings {
            landlock: settings.landlock,
            seccomp: settings.seccomp,
            connect_timeout,
            folder: settings.state.clone(),
        },
    ));
    let connector = match proxy {
        None => Connector::direct(tcp, tls, connect_timeout),
        Some(proxy) if !matches!(proxy.uri().scheme_str(), Some("http" | "https")) => {
            return Err(configuration_error(
                "the proxy of the environment is not an HTTP proxy; name one with http:// or https://",
            ));
        }
        // Only a tunnel keeps the proxy from reading the key and the conversation.
        Some(proxy) if address.scheme() == "https" => {
            Connector::tunnel(tcp, proxy.uri().clone(), proxy.basic_auth().cloned(), tls, connect_timeout)
        }
        Some(proxy) => {
            proxy_authorization = proxy.basic_auth().cloned();
            Connector::forward_proxy(tcp, proxy.uri().clone(), tls, connect_timeout)
        }
    };
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .build(connector);
    Ok(ProviderClient { client, proxy_authorization })
}

impl ProviderClient {
    /// Sends a request, and waits for the head of the response.
    pub(super) async fn post(
        &self,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, legacy::Error> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let agent = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        if let Some(value) = &self.proxy_authorization {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
        self.client.request(request).await
    }
}

/// Reads the next chunk of a response's body; `None` at its end.
///
/// # Cancellation
/// Dropping the future loses no chunk.
pub(super) async fn next_chunk(response: &mut Response) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = response.frame().await {
        // A frame without data carries trailers, which are not needed.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Converts an address to the HTTP crate's type.
pub(super) fn uri(address: &Url) -> Result<Uri, ProviderError> {
    // Drop the source error: its text adds nothing, and the address may be long.
    address.as_str().parse().map_err(|_invalid: http::uri::InvalidUri| {
        configuration_error("the address has characters that HTTP does not allow")
    })
}

/// Creates a TLS configuration with the certificates that the machine trusts (`SSL_CERT_FILE` and
/// `SSL_CERT_DIR` override them). A plain address needs none, so a container without certificates can reach a
/// local model.
fn tls_config(is_needed: bool) -> Result<ClientConfig, ProviderError> {
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| configuration_error("cannot set up TLS").with_source(error))?;
    if !is_needed {
        return Ok(versions.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let trusting = versions.with_platform_verifier().map_err(|error| {
        configuration_error("cannot read the certificates that this machine trusts").with_source(error)
    })?;
    Ok(trusting.with_no_client_auth())
}

fn configuration_error(message: &str) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::ProviderKind;

    fn settings() -> ProviderSettings {
        ProviderSettings::new(ProviderKind::OpenAi, "m")
    }

    /// Sends one request to an address through a proxy that answers with `answer`. Returns the text that the
    /// proxy got.
    async fn request_through_proxy(address: &str, answer: &str) -> (String, Result<u16, String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = format!("http://me:pass@{}", listener.local_addr().expect("an address"));
        let matcher = Matcher::builder().all(proxy).build();
        let address = Url::parse(address).expect("a URL");
        let client = client_through(Some(&matcher), &address, &settings()).expect("a client");
        let proxy = async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut request_bytes = Vec::new();
            while !request_bytes.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut request_bytes).await.expect("reads"), 0, "{request_bytes:?}");
            }
            stream.write_all(answer.as_bytes()).await.expect("writes");
            String::from_utf8(request_bytes).expect("the text is UTF-8").to_ascii_lowercase()
        };
        let request = async {
            let mut headers = HeaderMap::new();
            headers.insert("x-key", HeaderValue::from_static("secret"));
            let answered = client.post(uri(&address).expect("an address"), headers, Bytes::new()).await;
            answered.map(|response| response.status().as_u16()).map_err(|error| error.to_string())
        };
        tokio::join!(proxy, request)
    }

    #[tokio::test]
    async fn a_plain_address_is_asked_through_its_proxy() {
        let answer = "HTTP/1.1 204 No Content\r\n\r\n";
        let (proxy_request, status) = request_through_proxy("http://model.example/v1", answer).await;
        assert!(proxy_request.starts_with("post http://model.example/v1 http/1.1\r\n"), "{proxy_request}");
        assert!(proxy_request.contains("\r\nhost: model.example\r\n"), "{proxy_request}");
        assert!(proxy_request.contains("\r\nproxy-authorization: basic "), "{proxy_request}");
        assert!(proxy_request.contains("\r\nuser-agent: portcullis/"), "{proxy_request}");
        assert_eq!(status, Ok(204));
    }

    #[tokio::test]
    async fn a_proxy_sees_nothing_of_a_request_under_tls() {
        let answer = "HTTP/1.1 403 Forbidden\r\n\r\n";
        let (proxy_request, status) = request_through_proxy("https://model.example/v1", answer).await;
        assert!(proxy_request.starts_with("connect model.example:443 http/1.1\r\n"), "{proxy_request}");
        assert!(proxy_request.contains("\r\nproxy-authorization: basic "), "{proxy_request}");
        assert!(!proxy_request.contains("secret") && !proxy_request.contains("/v1"), "{proxy_request}");
        status.expect_err("no tunnel, no request");
    }

    #[test]
    fn a_proxy_that_does_not_speak_http_is_refused() {
        let matcher = Matcher::builder().all("socks5://127.0.0.1:1").build();
        let address = Url::parse("http://model.example").expect("a URL");
        let error = client_through(Some(&matcher), &address, &settings()).expect_err("refused");
        assert_eq!(error.kind(), ProviderErrorKind::Configuration);
    }
}
