//! The errors of starting the threads, and of requests.
//!
//! [`EgressError`] is for operators. [`FetchError`] is for callers of a tool: a stable code, and a text that may name a
//! host, but no query, header value or body.

use std::{io, net::SocketAddr, time::Duration};

use hickory_resolver::net::NetError;
use http::{HeaderName, Method};
use portcullis_confine::ConfineError;

use crate::Refusal;

/// The reason why the threads could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    /// The machine's resolver configuration cannot be read, or names no server.
    #[error("cannot read the name servers of /etc/resolv.conf")]
    NameServers {
        /// The resolver's error.
        #[source]
        source: NetError,
    },
    /// The hosts file cannot be read.
    #[error("cannot read the hosts file")]
    Hosts {
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The resolver cannot be built.
    #[error("cannot build the resolver")]
    Resolver {
        /// The resolver's error.
        #[source]
        source: NetError,
    },
    /// The address of the proxy cannot be used.
    #[error("invalid address of the proxy: {problem}")]
    Proxy {
        /// The problem, such as `it has no host`.
        problem: &'static str,
    },
    /// No certificate is trusted, so no `https` request could succeed.
    #[error("there is no trusted certificate: install the machine's CA certificates, or name a file as `ca`")]
    NoRoots,
    /// A certificate of `ca` cannot be read.
    #[error("cannot read certificate {index} of the text that `ca` names")]
    Root {
        /// The certificate's index in the text, from 0.
        index: usize,
        /// The error of PEM or TLS.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls {
        /// The error of the TLS library.
        #[source]
        source: rustls::Error,
    },
    /// A thread or its runtime could not be started.
    #[error("cannot start a thread for requests")]
    Thread {
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// A thread panicked while it started.
    #[error("a thread for requests panicked while it started")]
    ThreadPanicked,
    /// A thread could not be confined.
    #[error("cannot confine a thread for requests")]
    Confine {
        /// The error of the confinement.
        #[source]
        source: ConfineError,
    },
}

/// The reason why a request failed or was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The judge refused the request, an address or a redirect. The code is the refusal's.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The URL has a scheme other than `http` and `https`.
    #[error("the scheme `{scheme}` is not supported; only http and https are")]
    Scheme {
        /// The URL's scheme.
        scheme: String,
    },
    /// The URL holds a user name or a password.
    #[error("a URL with a user name or a password cannot be requested")]
    UserInfo,
    /// The URL has no host, or parts that cannot be sent.
    #[error("the URL cannot be sent as a request")]
    UrlUnusable,
    /// Requests must not go to this port.
    #[error("port {port} is not open to requests")]
    PortClosed {
        /// The port that was to be dialled.
        port: u16,
    },
    /// The method is `CONNECT` or `TRACE`.
    #[error("the method {method} is not allowed")]
    MethodForbidden {
        /// The method of the request.
        method: Method,
    },
    /// The request has a header that belongs to the connection or the framing, that carries a credential of
    /// this request, or that asks for a partial response from a host that may know a secret.
    #[error("the header `{name}` cannot be set")]
    HeaderForbidden {
        /// The name of the refused header.
        name: HeaderName,
    },
    /// The request is larger than the limit.
    #[error("the request has more than {limit} bytes")]
    RequestTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The host's name has no address, or the name servers did not answer.
    #[error("cannot resolve the name {host}")]
    NameUnresolved {
        /// The URL's host, or the proxy's.
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
        /// The URL's host, or the proxy's.
        host: String,
    },
    /// The name has more addresses than the limit.
    #[error("the name {host} has more than {limit} addresses")]
    TooManyAddresses {
        /// The URL's host, or the proxy's.
        host: String,
        /// The maximum number of addresses of one name.
        limit: usize,
    },
    /// No address of the host accepted a connection.
    #[error("cannot connect to {host}")]
    ConnectFailed {
        /// The URL's host, or the proxy's.
        host: String,
        /// The address that was tried last. The text omits it: a tool's caller knows the name, not its addresses.
        address: SocketAddr,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The proxy refused to open a tunnel, or asked for credentials. The body of its response is not read.
    #[error("the proxy responds with {status} to a connection to {host}{}", missing(*status))]
    ProxyRefused {
        /// The host behind the proxy.
        host: String,
        /// The proxy's status.
        status: u16,
    },
    /// The proxy's response to `CONNECT` is malformed, too long or ambiguous.
    #[error("the proxy's response to a connection to {host} is refused: {problem}")]
    ProxyInvalid {
        /// The host behind the proxy.
        host: String,
        /// The fault, such as `it is not HTTP/1`.
        problem: &'static str,
    },
    /// The connection to the proxy broke before the proxy had answered.
    #[error("the proxy broke off a connection to {host}")]
    ProxyBroken {
        /// The host behind the proxy.
        host: String,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// TLS failed: the certificate is untrusted, expired or for another host, or the two sides have no
    /// version or cipher in common.
    #[error("cannot agree on TLS with {host}")]
    TlsFailed {
        /// The URL's host, which the certificate must name.
        host: String,
        /// The I/O error, which wraps the error of the TLS library.
        #[source]
        source: io::Error,
    },
    /// Connecting to an address, opening a proxy's tunnel, or the TLS handshake took longer than the limit.
    #[error("no connection to {host} within {limit:?}")]
    ConnectTimeout {
        /// The URL's host, or the proxy's.
        host: String,
        /// The maximum time for connecting.
        limit: Duration,
    },
    /// The response's headers were not complete within the limit.
    #[error("no response from {host} within {limit:?}")]
    FirstByteTimeout {
        /// The URL's host.
        host: String,
        /// The maximum time until the headers are complete.
        limit: Duration,
    },
    /// The host of a tunnel or dial was not resolved and judged in time.
    #[error("{host} was not resolved within {limit:?}")]
    ResolveTimeout {
        /// The URL's host.
        host: String,
        /// The maximum time until the host is resolved.
        limit: Duration,
    },
    /// The whole request exceeded the timeout.
    #[error("the request was not finished within {limit:?}")]
    TotalTimeout {
        /// The maximum time for the whole request.
        limit: Duration,
    },
    /// The response has more or longer headers than the limits allow.
    #[error("the headers of the response from {host} are too large")]
    HeadersTooLarge {
        /// The URL's host.
        host: String,
        /// The error of the HTTP library.
        #[source]
        source: hyper::Error,
    },
    /// The response's framing is ambiguous, so two readers could see different bodies (RFC 9112, section
    /// 6.3).
    #[error("the response from {host} has {fault}")]
    Framing {
        /// The URL's host.
        host: String,
        /// The fault, such as `two lengths`.
        fault: &'static str,
    },
    /// The response is partial (RFC 9110, section 15.3.7), and its host may know a secret: redaction would
    /// miss a value that is split across two parts.
    #[error(
        "the response from {host} is partial; partial responses of a host that may know a secret are refused"
    )]
    ResponsePartial {
        /// The host that sent the part.
        host: String,
    },
    /// The response is not valid HTTP/1.
    #[error("the response from {host} is not valid HTTP")]
    ResponseInvalid {
        /// The URL's host.
        host: String,
        /// The error of the HTTP library.
        #[source]
        source: hyper::Error,
    },
    /// The connection ended before the response did.
    #[error("the response from {host} was cut off")]
    ResponseTruncated {
        /// The URL's host.
        host: String,
        /// The error of the HTTP library.
        #[source]
        source: hyper::Error,
    },
    /// The body as transferred, or as announced, exceeds the limit.
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
    /// The response has a compression that was not offered, or several.
    #[error("the response has a content coding other than gzip and br")]
    CodingUnsupported,
    /// The compressed body is damaged or truncated.
    #[error("cannot decompress the response")]
    CodingInvalid {
        /// The decoder's error.
        #[source]
        source: io::Error,
    },
    /// A redirect has no readable target.
    #[error("the redirect of {host} has no valid target")]
    RedirectInvalid {
        /// The host that sent the redirect.
        host: String,
    },
    /// A redirect leads from `https` to `http`.
    #[error("the redirect of {host} leads from https to http")]
    RedirectDowngrade {
        /// The host that sent the redirect.
        host: String,
    },
    /// A redirect would carry the request's body to another origin, for example with status 307 or 308.
    #[error("the redirect of {host} would send the request's body to another origin")]
    RedirectBody {
        /// The host that sent the redirect.
        host: String,
    },
    /// There were more redirects than the limit.
    #[error("more than {limit} redirects")]
    TooManyRedirects {
        /// The maximum number of redirects.
        limit: u32,
    },
    /// The caller cancelled the request. Its connection is closed.
    #[error("the request was cancelled")]
    Cancelled,
    /// Every thread's queue is full, or a thread has reached its limit of streams or tunnels.
    #[error("too many requests are in flight")]
    Busy,
    /// The thread can no longer prove its confinement, and has ended.
    #[error("the thread for requests is no longer confined")]
    NotConfined {
        /// The error of the confinement.
        #[source]
        source: ConfineError,
    },
    /// The threads have ended, or a bug of this crate made the request panic.
    #[error("the thread for requests has stopped")]
    Stopped,
}

impl FetchError {
    /// Returns a stable name of the failure, for results and audit rows.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            // A refusal of the policy keeps the policy's own code.
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
            Self::ResolveTimeout { .. } => "resolve_timeout",
            Self::TotalTimeout { .. } => "total_timeout",
            Self::HeadersTooLarge { .. } => "headers_too_large",
            Self::Framing { .. } => "response_framing",
            Self::ResponsePartial { .. } => "response_partial",
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

/// Returns a hint for status 407, with which a proxy asks for credentials.
fn missing(status: u16) -> &'static str {
    match status {
        407 => ": it asks for credentials, and none can be configured",
        _ => "",
    }
}
