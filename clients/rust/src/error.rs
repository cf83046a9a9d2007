//! [`ClientError`]: why a request, a stream or a worker failed.

use std::{error::Error, fmt, time::Duration};

use thiserror::Error;

/// Why the address of a gateway cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressFault {
    /// The scheme is neither `http` nor `https`.
    Scheme,
    /// There is a user or a password.
    Credentials,
    /// There is a query or a fragment.
    Suffix,
    /// A path or a query has characters that HTTP does not carry.
    Characters,
}

impl fmt::Display for AddressFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "begins neither with http:// nor with https://",
            Self::Credentials => "has a user or a password; the token alone says who the caller is",
            Self::Suffix => "has a query or a fragment; name only what comes before `/api`",
            Self::Characters => "has characters that HTTP does not carry",
        })
    }
}

/// Why an operation failed. Neither its text nor its source contains the token.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address of the gateway is not a URL.
    #[error(
        "the address of the gateway is not a URL; write `https://HOST`, with a port and a path if it has them"
    )]
    NoUrl {
        /// The error of the URL parser.
        #[source]
        source: url::ParseError,
    },
    /// The address of the gateway cannot be used.
    #[error("the address of the gateway {fault}")]
    Address {
        /// The problem, and the correct form.
        fault: AddressFault,
    },
    /// The token would go to another machine without TLS.
    #[error(
        "the token would go to `{host}` without TLS; use https://, or allow it by \
         `Gateway::new_allowing_plain_http`"
    )]
    PlainHttp {
        /// The host of the address.
        host: String,
    },
    /// The token is empty, or has characters that no token has.
    #[error("the token is empty, or has a character that no HTTP header carries, such as the end of a line")]
    Token,
    /// An id cannot be an id of the gateway.
    #[error("the id of the {subject} is empty, too long, or has characters that no id has")]
    Id {
        /// The subject: `agent`, `run`, `call` or `event`.
        subject: &'static str,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls {
        /// The error of the TLS library.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The connection could not be opened, or was lost.
    #[error("the connection to the gateway failed")]
    Connection {
        /// The error of the HTTP client.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The gateway did not answer in time.
    #[error("the gateway did not answer within {} s", after.as_secs())]
    TimedOut {
        /// How long the client waited.
        after: Duration,
    },
    /// Nothing arrived on a stream of events, although the gateway sends a comment every 15 s.
    #[error("the stream of events was silent for {} s", after.as_secs())]
    Silent {
        /// How long the client waited.
        after: Duration,
    },
    /// The gateway refused the request.
    #[error("the gateway refused the request: {status} {code}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The gateway's code, such as `unauthorized`. `unknown` if the response did not come from a gateway.
        code: String,
        /// The gateway's reason: one line of at most 300 characters.
        message: String,
    },
    /// The response was a redirect, which is not followed.
    #[error(
        "the response was a redirect ({status}), which would take the token elsewhere; name the final address"
    )]
    Redirected {
        /// The HTTP status.
        status: u16,
    },
    /// The gateway sent more than the client accepts.
    #[error("the {subject} has more than {limit_bytes} bytes")]
    TooLarge {
        /// The subject: `event` or `response`.
        subject: &'static str,
        /// The maximum size that the client accepts, in bytes.
        limit_bytes: usize,
    },
    /// The gateway sent data in an unknown form.
    #[error("the {subject} cannot be read: it does not have the form of a gateway's response")]
    Unreadable {
        /// The subject: `event` or `response`.
        subject: &'static str,
        /// The error of the parser, or of the check of an id.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A result is larger than the gateway accepts.
    #[error("the result has more than {limit_bytes} bytes")]
    ResultTooLarge {
        /// The limit, which includes the id of the call.
        limit_bytes: usize,
    },
    /// A result cannot be written as JSON.
    #[error("the result cannot be written as JSON")]
    NotJson {
        /// The error of the serializer.
        #[source]
        source: serde_json::Error,
    },
}

impl ClientError {
    /// Returns whether the same request may succeed later: after a lost connection, a timeout, a response
    /// that was too large or unreadable, and the statuses 408, 429 and 5xx.
    /// [`Worker::run`](crate::Worker::run) continues after such an error, and ends with any other.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection { .. }
            | Self::TimedOut { .. }
            | Self::Silent { .. }
            | Self::TooLarge { .. }
            | Self::Unreadable { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::NoUrl { .. }
            | Self::Address { .. }
            | Self::PlainHttp { .. }
            | Self::Token
            | Self::Id { .. }
            | Self::Tls { .. }
            | Self::Redirected { .. }
            | Self::ResultTooLarge { .. }
            | Self::NotJson { .. } => false,
        }
    }

    pub(crate) fn connection(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Connection { source: source.into() }
    }

    pub(crate) fn unreadable(subject: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreadable { subject, source: source.into() }
    }
}
