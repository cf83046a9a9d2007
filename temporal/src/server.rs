//! [`Address`]: the address of a Temporal server. `connect` opens the connection.

use std::{net::IpAddr, str::FromStr, time::Duration};

use temporalio_client::{Connection, ConnectionOptions, TlsOptions};
use thiserror::Error;
use url::{Host, Url};

use crate::WorkerError;

/// The timeout of a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The default port of a Temporal server.
const PORT: u16 = 7233;

/// The address of a Temporal server: `HOST:PORT`, `https://HOST:PORT` or `http://HOST:PORT`.
///
/// Without a scheme, the connection to this machine is plain text, and to any other machine TLS. `http://`
/// forces plain text to another machine: a host in between could then read and change the work that the
/// workers get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(Url);

/// The error of a text that is not an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not an address of a Temporal server: HOST:PORT, https://HOST:PORT or http://HOST:PORT", .text.escape_debug())]
pub struct InvalidAddress {
    /// The text, as it was given.
    pub text: String,
}

impl Address {
    /// Returns whether the connection uses TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.0.scheme() == "https"
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidAddress { text: text.to_owned() };
        let has_scheme = text.contains("://");
        let parse = |text: &str| Url::parse(text).map_err(|_error| invalid());
        // Parsing the host needs a scheme. Another machine gets `https` below.
        let mut url = if has_scheme { parse(text)? } else { parse(&format!("http://{text}"))? };
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none();
        if !is_plain || !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(invalid());
        }
        if !has_scheme && !is_here(&url) {
            // Parse the text again, because the first parse has dropped an explicit port 80.
            url = parse(&format!("https://{text}"))?;
        }
        if url.port().is_none() {
            url.set_port(Some(PORT)).map_err(|()| invalid())?;
        }
        Ok(Self(url))
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

/// Returns whether the address is on this machine.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

/// Connects to a server. With TLS, an authority that this machine trusts must have issued the server's
/// certificate.
///
/// # Errors
/// [`WorkerError::Unreachable`] if the connection is refused, fails, or is not made in time.
pub async fn connect(address: &Address) -> Result<Connection, WorkerError> {
    let options = ConnectionOptions::new(address.0.clone())
        .identity(format!("portcullis-{}", std::process::id()))
        .maybe_tls_options(address.uses_tls().then(TlsOptions::default))
        .build();
    let address = address.to_string();
    match tokio::time::timeout(CONNECT_TIMEOUT, Connection::connect(options)).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(source)) => Err(WorkerError::Unreachable { address, source: Box::new(source) }),
        Err(elapsed) => Err(WorkerError::Unreachable { address, source: Box::new(elapsed) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(text.parse::<Address>().expect(text).to_string(), expected);
    }

    #[test]
    fn clear_text_to_other_machines_must_be_in_the_address() {
        check("localhost:7233", "http://localhost:7233");
        check("127.0.0.1:1", "http://127.0.0.1:1");
        check("[::1]:7233", "http://[::1]:7233");
        check("temporal.example:7233", "https://temporal.example:7233");
        check("10.0.0.1", "https://10.0.0.1:7233");
        check("http://10.0.0.1:7233", "http://10.0.0.1:7233");
        check("https://localhost:7233", "https://localhost:7233");
    }

    #[test]
    fn a_text_that_is_not_an_address_is_refused() {
        for text in
            ["", ":7233", "host:x", "ftp://host:1", "http://u@host:1", "host:1/path", "host:1?q", "a b:1"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named() {
        // Use a port that was free a moment ago.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let address: Address = format!("127.0.0.1:{port}").parse().expect("an address");
        let error = connect(&address).await.err().expect("no server");
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    }
}
