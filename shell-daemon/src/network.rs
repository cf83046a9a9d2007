//! The network of a session: one listener in its network namespace, through which its programs reach a forwarder
//! outside.
//!
//! The session makes the listener, sends it to the sidecar and closes it. The sidecar, outside the session, accepts on
//! it. Only a session with the posture `strong` has a network: in weaker postures the network namespace, or another
//! layer that restricts the session, may be missing.

use std::sync::Arc;

/// The settings of a session with a network, apart from its listener.
#[derive(Clone, Debug)]
pub struct SessionNetwork {
    /// The trusted certificates in PEM form (RFC 7468), below 1 MiB. Programs find them at
    /// `/etc/portcullis/certificates.pem`.
    pub certificates: Arc<str>,
}

/// The port of the forwarder on 127.0.0.1 in a session.
pub(crate) const PORT: u16 = 3128;

/// The file of the certificates in a session.
pub(crate) const CERTIFICATES: &str = "/etc/portcullis/certificates.pem";

/// The maximum size of the certificates, in bytes. The root folder of a session's file tree holds little more.
pub(crate) const MAX_CERTIFICATES_BYTES: u64 = 1 << 20;

/// The variables with which programs find the forwarder, in all usual spellings. curl reads `http_proxy` only in lower
/// case. The forwarder refuses plain HTTP, with the reason.
const PROXY: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "npm_config_proxy",
    "npm_config_https_proxy",
];

/// The variables of exceptions from the proxy, which must be empty.
const NO_PROXY: [&str; 3] = ["NO_PROXY", "no_proxy", "npm_config_noproxy"];

/// The variables with which programs find the certificates: OpenSSL and programs in Go and Rust, curl, git, cargo, pip
/// and Python's requests, npm, and other programs in Node.js. Each is needed: for example, git reads only its own
/// variable, and `REQUESTS_CA_BUNDLE` overrides `PIP_CERT`.
const CERTIFICATE_FILES: [&str; 8] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "npm_config_cafile",
    "NODE_EXTRA_CA_CERTS",
];

/// The variables of a session with a network. They replace variables of the same name from outside.
pub(crate) fn variables() -> impl Iterator<Item = (String, String)> {
    let proxy = PROXY.map(|name| (name, format!("http://127.0.0.1:{PORT}")));
    let exceptions = NO_PROXY.map(|name| (name, String::new()));
    let files = CERTIFICATE_FILES.map(|name| (name, CERTIFICATES.to_owned()));
    proxy.into_iter().chain(exceptions).chain(files).map(|(name, value)| (name.to_owned(), value))
}
