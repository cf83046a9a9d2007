//! The HTTP client: trusted certificates, no redirects, proxies.
//!
//! It is hyper's client over rustls. A crate above it would impose a choice of TLS on every program that
//! embeds this crate, since cargo unites the features of one crate: reqwest's `rustls-no-provider` makes each
//! plain `reqwest::Client::new()` of such a program panic.

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

/// An answer whose head has come. [`chunk`] reads its body.
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
/// It follows no redirect, which would take the key and the conversation to another host. It uses a proxy
/// from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), but never for an address of
/// this machine. It speaks only HTTP/1.1: giving an answer up closes its connection, which also ends the work
/// at the other end.
///
/// A confined thread opens its connections ([`portcullis_egress::Dialler`]).
pub(super) fn client(address: &Url, settings: &ProviderSettings) -> Result<ProviderClient, ProviderError> {
    let proxies = (!settings::is_this_machine(address)).then(Matcher::from_env);
    through(proxies.as_ref(), address, settings)
}

/// As [`client`], with these proxies.
fn through(
    proxies: Option<&Matcher>,
    address: &Url,
    settings: &ProviderSettings,
) -> Result<ProviderClient, ProviderError> {
    let limit = settings.limits.connect;
    let proxy = proxies.and_then(|proxies| proxies.intercept(&uri(address).ok()?));
    let is_tls = |uri: &Uri| uri.scheme_str() == Some("https");
    let needs_trust = address.scheme() == "https" || proxy.as_ref().is_some_and(|proxy| is_tls(proxy.uri()));
    let tls = Arc::new(trust(needs_trust)?);
    let mut proxy_authorization = None;
    let origin = match &proxy {
        Some(proxy) => Url::parse(&proxy.uri().to_string())
            .map_err(|error| wrong("the proxy of the environment is no URL").with_source(error))?,
        None => address.clone(),
    };
    let tcp = TcpConnector::new(Dialler::new(
        [&origin],
        DiallerSettings {
            landlock: settings.landlock,
            seccomp: settings.seccomp,
            connect: limit,
            folder: settings.state.clone(),
        },
    ));
    let connector = match proxy {
        None => Connector::direct(tcp, tls, limit),
        Some(proxy) if !matches!(proxy.uri().scheme_str(), Some("http" | "https")) => {
            return Err(wrong(
                "the proxy of the environment is none of HTTP; name one with http:// or https://",
            ));
        }
        Some(proxy) if address.scheme() == "https" => {
            Connector::tunnel(tcp, proxy.uri().clone(), proxy.basic_auth().cloned(), tls, limit)
        }
        Some(proxy) => {
            proxy_authorization = proxy.basic_auth().cloned();
            Connector::passed_on(tcp, proxy.uri().clone(), tls, limit)
        }
    };
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .build(connector);
    Ok(ProviderClient { client, proxy_authorization })
}

impl ProviderClient {
    /// Sends a request, and waits for the head of the answer.
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

/// Reads the next chunk of an answer's body; none at its end.
///
/// # Cancellation
/// Dropping the future loses no chunk.
pub(super) async fn chunk(response: &mut Response) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = response.frame().await {
        // Trailers carry nothing needed here.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Converts an address to the HTTP crate's type.
pub(super) fn uri(address: &Url) -> Result<Uri, ProviderError> {
    // The source is dropped: its text adds nothing, and the address may be long.
    address
        .as_str()
        .parse()
        .map_err(|_invalid: http::uri::InvalidUri| wrong("the address has signs that HTTP does not carry"))
}

/// The certificates that the machine trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others). A plain address
/// needs none, so a local model can be reached from a container without certificates.
fn trust(is_needed: bool) -> Result<ClientConfig, ProviderError> {
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("cannot set up TLS").with_source(error))?;
    if !is_needed {
        return Ok(versions.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let trusting = versions
        .with_platform_verifier()
        .map_err(|error| wrong("cannot read the certificates that this machine trusts").with_source(error))?;
    Ok(trusting.with_no_client_auth())
}

fn wrong(message: &str) -> ProviderError {
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

    /// Sends one request to an address through a proxy that answers with `answer`; returns the text that the
    /// proxy got.
    async fn request_through_proxy(address: &str, answer: &str) -> (String, Result<u16, String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = format!("http://me:pass@{}", listener.local_addr().expect("an address"));
        let matcher = Matcher::builder().all(proxy).build();
        let address = Url::parse(address).expect("a URL");
        let client = through(Some(&matcher), &address, &settings()).expect("a client");
        let proxy = async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut said = Vec::new();
            while !said.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut said).await.expect("reads"), 0, "{said:?}");
            }
            stream.write_all(answer.as_bytes()).await.expect("writes");
            String::from_utf8(said).expect("text").to_ascii_lowercase()
        };
        let request = async {
            let mut headers = HeaderMap::new();
            headers.insert("x-key", HeaderValue::from_static("secret"));
            let asked = client.post(uri(&address).expect("an address"), headers, Bytes::new()).await;
            asked.map(|response| response.status().as_u16()).map_err(|error| error.to_string())
        };
        tokio::join!(proxy, request)
    }

    #[tokio::test]
    async fn a_plain_address_is_asked_through_its_proxy() {
        let answer = "HTTP/1.1 204 No Content\r\n\r\n";
        let (said, status) = request_through_proxy("http://model.example/v1", answer).await;
        assert!(said.starts_with("post http://model.example/v1 http/1.1\r\n"), "{said}");
        assert!(said.contains("\r\nhost: model.example\r\n"), "{said}");
        assert!(said.contains("\r\nproxy-authorization: basic "), "{said}");
        assert!(said.contains("\r\nuser-agent: portcullis/"), "{said}");
        assert_eq!(status, Ok(204));
    }

    #[tokio::test]
    async fn a_proxy_sees_nothing_of_a_request_under_tls() {
        let answer = "HTTP/1.1 403 Forbidden\r\n\r\n";
        let (said, status) = request_through_proxy("https://model.example/v1", answer).await;
        assert!(said.starts_with("connect model.example:443 http/1.1\r\n"), "{said}");
        assert!(said.contains("\r\nproxy-authorization: basic "), "{said}");
        assert!(!said.contains("secret") && !said.contains("/v1"), "{said}");
        status.expect_err("no tunnel, no request");
    }

    #[test]
    fn a_proxy_that_does_not_speak_http_is_refused() {
        let matcher = Matcher::builder().all("socks5://127.0.0.1:1").build();
        let address = Url::parse("http://model.example").expect("a URL");
        let error = through(Some(&matcher), &address, &settings()).expect_err("refused");
        assert_eq!(error.kind(), ProviderErrorKind::Configuration);
    }
}
