//! The reasons why a tunnel is not opened.

use std::{io, time::Duration};

use crate::FetchError;

/// The reason why a tunnel was not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    /// The judge's refusal, or the reason why the host cannot be reached.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("only TLS tunnels are supported: use CONNECT, as for an https address")]
    Method,
    #[error("the request cannot be read: {problem}")]
    Head { problem: &'static str },
    #[error("the request is longer than {limit} bytes")]
    HeadTooLarge { limit: usize },
    #[error("the request did not arrive within {limit:?}")]
    HeadTimeout { limit: Duration },
    #[error("only hosts with a name can be reached: an address carries no server name to compare")]
    Address,
    #[error("TLS did not begin within {limit:?}")]
    HelloTimeout { limit: Duration },
    #[error("the first message of TLS is longer than {limit} bytes")]
    HelloTooLarge { limit: usize },
    #[error("the data after the request is not TLS")]
    NotTls,
    #[error("the TLS ClientHello names no server")]
    NoServerName,
    #[error("the TLS ClientHello and the CONNECT request name different servers")]
    OtherServerName,
    #[error("the connection broke before the tunnel was open")]
    Broken { source: io::Error },
}

impl TunnelError {
    /// Returns a stable name of the failure, for audit rows.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Fetch(error) => error.code(),
            Self::Method => "tunnel_not_connect",
            Self::Head { .. } | Self::HeadTooLarge { .. } => "tunnel_request_invalid",
            Self::HeadTimeout { .. } | Self::HelloTimeout { .. } => "tunnel_timeout",
            Self::Address => "tunnel_to_address",
            Self::HelloTooLarge { .. } | Self::NotTls => "tunnel_not_tls",
            Self::NoServerName => "tunnel_no_server_name",
            Self::OtherServerName => "tunnel_other_server_name",
            Self::Broken { .. } => "tunnel_broken",
        }
    }

    /// Returns the HTTP response to the client's request. Its body contains the code and the reason, for people
    /// who read the output of a program.
    pub(crate) fn response(&self) -> String {
        let status = match self {
            Self::Method => "405 Method Not Allowed\r\nAllow: CONNECT",
            Self::Head { .. } | Self::Address => "400 Bad Request",
            Self::HeadTooLarge { .. } => "431 Request Header Fields Too Large",
            Self::HeadTimeout { .. } => "408 Request Timeout",
            Self::Fetch(
                FetchError::NameUnresolved { .. }
                | FetchError::NoNameServers { .. }
                | FetchError::ResolveTimeout { .. },
            ) => "502 Bad Gateway",
            Self::Fetch(FetchError::Busy) => "503 Service Unavailable",
            _ => "403 Forbidden",
        };
        let body = format!("{}: {self}\n", self.code());
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    }
}
