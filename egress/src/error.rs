//! Errors: the threads could not be started, or a request failed.
//!
//! [`EgressError`] is for operators. [`FetchError`] is for callers of a tool: a stable code, and a text that
//! names a host and never a query, a header or a body.

use std::{io, net::SocketAddr, time::Duration};

use hickory_resolver::net::NetError;
use http::{HeaderName, Method};
use portcullis_confine::ConfineError;

use crate::Refusal;

/// The threads could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    /// The machine's resolver configuration cannot be read, or names no server.
    #[error("read the name servers of /etc/resolv.conf")]
    NameServers {
        /// The resolver's error.
        #[source]
        source: NetError,
    },
    /// The text of the hosts file cannot be read.
    #[error("read the hosts file")]
    Hosts {
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The resolver cannot be built.
    #[error("build the resolver")]
    Resolver {
        /// The resolver's error.
        #[source]
        source: NetError,
    },
    /// The address of the proxy cannot be used.
    #[error("the address of the proxy cannot be used: {problem}")]
    Proxy {
        /// The problem.
        problem: &'static str,
    },
    /// No certificate is trusted, so that no `https` request could succeed.
    #[error("there is no trusted certificate: install the machine's CA certificates, or name a file as `ca`")]
    NoRoots,
    /// A certificate of `ca` cannot be read.
    #[error("read certificate {index} of the text that `ca` names")]
    Root {
        /// Its index in the text, from 0.
        index: usize,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// TLS cannot be set up.
    #[error("set up TLS")]
    Tls {
        /// The error of the TLS library.
        #[source]
        source: rustls::Error,
    },
    /// A thread or its runtime could not be started.
    #[error("start a thread for requests")]
    Thread {
        /// The I/O error; of a panic, only that it happened.
        #[source]
        source: io::Error,
    },
    /// A thread could not be confined.
    #[error("confine a thread for requests")]
    Confine {
        /// The failure.
        #[source]
        source: ConfineError,
    },
}

/// A request failed, or was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The judge refused the request, an address or a redirect. The code is the refusal's.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A scheme other than `http` and `https`.
    #[error("the scheme `{scheme}` cannot be requested, only http and https")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// The URL holds a user name or a password.
    #[error("a URL with a user name or a password cannot be requested")]
    UserInfo,
    /// The URL has no host, or parts that cannot be sent.
    #[error("the URL cannot be sent as a request")]
    UrlUnusable,
    /// The threads may not connect to this port.
    #[error("port {port} is not open to requests")]
    PortClosed {
        /// The port.
        port: u16,
    },
    /// `CONNECT` or `TRACE`.
    #[error("the method {method} cannot be requested")]
    MethodForbidden {
        /// The method.
        method: Method,
    },
    /// A header that belongs to the connection or the framing, or that carries a credential of this request.
    #[error("the header `{name}` cannot be set")]
    HeaderForbidden {
        /// The header.
        name: HeaderName,
    },
    /// The request is larger than the limit.
    #[error("the request has more than {limit} bytes")]
    RequestTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The host's name has no address, or the name servers did not answer.
    #[error("resolve the name {host}")]
    NameUnresolved {
        /// The host.
        host: String,
        /// The resolver's error.
        #[source]
        source: NetError,
    },
    /// The host is a name, and this machine names no server to ask.
    #[error(
        "the name {host} cannot be resolved: /etc/resolv.conf is missing, cannot be read, or names no server"
    )]
    NoNameServers {
        /// The host.
        host: String,
    },
    /// The name has more addresses than the limit.
    #[error("the name {host} has more than {limit} addresses")]
    TooManyAddresses {
        /// The host.
        host: String,
        /// The limit.
        limit: usize,
    },
    /// No connection to any of the host's addresses.
    #[error("connect to {address} for {host}")]
    ConnectFailed {
        /// The host.
        host: String,
        /// The address that was tried last.
        address: SocketAddr,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The proxy does not open a tunnel, or asks for credentials. Its words are not read.
    #[error("the proxy answers {status} to a connection to {host}{}", missing(*status))]
    ProxyRefused {
        /// The host behind the proxy.
        host: String,
        /// The proxy's status.
        status: u16,
    },
    /// The proxy's answer cannot be trusted to be the beginning of a tunnel.
    #[error("the proxy's answer to a connection to {host} is refused: {problem}")]
    ProxyInvalid {
        /// The host behind the proxy.
        host: String,
        /// The fault.
        problem: &'static str,
    },
    /// The connection to the proxy broke before it had answered.
    #[error("the proxy broke off a connection to {host}")]
    ProxyBroken {
        /// The host behind the proxy.
        host: String,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// TLS failed: the certificate is not trusted, expired or another host's, or the two sides do not agree.
    #[error("agree on TLS with {host}")]
    TlsFailed {
        /// The host.
        host: String,
        /// The error, with that of the TLS library inside.
        #[source]
        source: io::Error,
    },
    /// Connecting to an address, or agreeing on TLS, took longer than the limit.
    #[error("no connection to {host} within {limit:?}")]
    ConnectTimeout {
        /// The host.
        host: String,
        /// The limit.
        limit: Duration,
    },
    /// The response's headers were not complete in time.
    #[error("no response from {host} within {limit:?}")]
    FirstByteTimeout {
        /// The host.
        host: String,
        /// The limit.
        limit: Duration,
    },
    /// The whole request took longer than the limit.
    #[error("the request was not finished within {limit:?}")]
    TotalTimeout {
        /// The limit.
        limit: Duration,
    },
    /// The response's headers are more or longer than the limits.
    #[error("the headers of the response from {host} are too large")]
    HeadersTooLarge {
        /// The host.
        host: String,
        /// The error of the HTTP library.
        #[source]
        source: hyper::Error,
    },
    /// The response says its length in two ways, so that two readers could see two bodies (RFC 9112, 6.3).
    #[error("the response from {host} has {fault}")]
    Framing {
        /// The host.
        host: String,
        /// The fault.
        fault: &'static str,
    },
    /// The response is not HTTP/1.
    #[error("the response from {host} is not valid HTTP")]
    ResponseInvalid {
        /// The host.
        host: String,
        /// The error of the HTTP library.
        #[source]
        source: hyper::Error,
    },
    /// The connection ended before the response did.
    #[error("the response from {host} was cut off")]
    ResponseTruncated {
        /// The host.
        host: String,
        /// The error of the HTTP library.
        #[source]
        source: hyper::Error,
    },
    /// The body as transferred, or as announced, is larger than the limit.
    #[error("the response has more than {limit} bytes")]
    ResponseTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The decompressed body is larger than the limit.
    #[error("the response has more than {limit} bytes after decompression")]
    DecodedTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A compression that was not offered, or several.
    #[error("the response has a content coding other than gzip and br")]
    CodingUnsupported,
    /// The compressed body is damaged or cut off.
    #[error("decompress the response")]
    CodingInvalid {
        /// The decoder's error.
        #[source]
        source: io::Error,
    },
    /// A redirect without a readable target.
    #[error("the redirect of {host} has no valid target")]
    RedirectInvalid {
        /// The host.
        host: String,
    },
    /// A redirect from `https` to `http`.
    #[error("the redirect of {host} leads from https to http")]
    RedirectDowngrade {
        /// The host.
        host: String,
    },
    /// A redirect would carry the request's body to another origin (status 307 or 308).
    #[error("the redirect of {host} would send the request's body to another origin")]
    RedirectBody {
        /// The host.
        host: String,
    },
    /// More redirects than the limit.
    #[error("more than {limit} redirects")]
    TooManyRedirects {
        /// The limit.
        limit: u32,
    },
    /// The caller cancelled the request. Its connection is closed.
    #[error("the request was cancelled")]
    Cancelled,
    /// Every thread has as many requests waiting as it takes.
    #[error("too many requests are under way")]
    Busy,
    /// The thread can no longer prove its confinement, and has ended.
    #[error("the thread for requests is no longer confined")]
    NotConfined {
        /// The failure.
        #[source]
        source: ConfineError,
    },
    /// The threads have ended, or the request met a bug of this crate.
    #[error("the thread for requests has stopped")]
    Stopped,
}

impl FetchError {
    /// A stable name of the failure, for results and audit rows.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code,
            Self::Scheme { .. } => "scheme_forbidden",
            Self::UserInfo => "user_info_forbidden",
            Self::UrlUnusable => "url_unusable",
            Self::PortClosed { .. } => "port_closed",
            Self::MethodForbidden { .. } => "method_forbidden",
            Self::HeaderForbidden { .. } => "header_forbidden",
            Self::RequestTooLarge { .. } => "request_too_large",
            Self::NameUnresolved { .. } => "name_unresolved",
            Self::NoNameServers { .. } => "no_name_servers",
            Self::TooManyAddresses { .. } => "too_many_addresses",
            Self::ConnectFailed { .. } => "connect_failed",
            Self::ProxyRefused { .. } => "proxy_refused",
            Self::ProxyInvalid { .. } => "proxy_invalid",
            Self::ProxyBroken { .. } => "proxy_broken",
            Self::TlsFailed { .. } => "tls_failed",
            Self::ConnectTimeout { .. } => "connect_timeout",
            Self::FirstByteTimeout { .. } => "first_byte_timeout",
            Self::TotalTimeout { .. } => "total_timeout",
            Self::HeadersTooLarge { .. } => "headers_too_large",
            Self::Framing { .. } => "response_framing",
            Self::ResponseInvalid { .. } => "response_invalid",
            Self::ResponseTruncated { .. } => "response_truncated",
            Self::ResponseTooLarge { .. } => "response_too_large",
            Self::DecodedTooLarge { .. } => "decoded_too_large",
            Self::CodingUnsupported => "coding_unsupported",
            Self::CodingInvalid { .. } => "coding_invalid",
            Self::RedirectInvalid { .. } => "redirect_invalid",
            Self::RedirectDowngrade { .. } => "redirect_downgrade",
            Self::RedirectBody { .. } => "redirect_body",
            Self::TooManyRedirects { .. } => "too_many_redirects",
            Self::Cancelled => "cancelled",
            Self::Busy => "busy",
            Self::NotConfined { .. } => "not_confined",
            Self::Stopped => "stopped",
        }
    }
}

/// What a proxy that asks for credentials is missing.
fn missing(status: u16) -> &'static str {
    match status {
        407 => ": it asks for credentials, and none can be configured",
        _ => "",
    }
}
