//! The URL of a server. `sslmode` and `sslrootcert` are read here, because `tokio_postgres` supports fewer values than
//! libpq.

use std::path::PathBuf;

use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};
use url::form_urlencoded;

use crate::error::OpenError;

/// A server's configuration, parsed from a URL.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: Config,
    pub(super) roots: Roots,
}

/// The root certificates to trust.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Roots {
    /// TLS is never used.
    Unused,
    /// The root certificates of the system.
    System,
    /// The certificates of a PEM file.
    File(PathBuf),
}

/// Reads a URL.
///
/// With TLS, the server's certificate and name are always verified, so `require` is as strict as `verify-full` of
/// libpq. Without `sslmode`, TLS is required of every server that is not reached through a Unix socket.
pub(super) fn parse(text: &str) -> Result<Server, OpenError> {
    let (address, query) = text.split_once('?').unwrap_or((text, ""));
    let (mut mode, mut roots) = (None, None);
    let mut rest = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "sslmode" => mode = Some(ssl_mode(&value)?),
            "sslrootcert" => roots = Some(PathBuf::from(&*value)),
            _ => {
                rest.append_pair(&name, &value);
            }
        }
    }
    // `tokio_postgres` decodes `%20`, but not `+`.
    let rest = rest.finish().replace('+', "%20");
    let url = if rest.is_empty() { address.to_owned() } else { format!("{address}?{rest}") };
    let mut config: Config = url.parse().map_err(|source: tokio_postgres::Error| OpenError::Url {
        reason: "it is not a PostgreSQL URL",
        source: Some(source.into()),
    })?;
    if config.get_hosts().is_empty() {
        return Err(url_error("it names no host; a socket's folder is named by `?host=/FOLDER`"));
    }
    // One host on the network is enough to require TLS of all.
    let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    let mode = mode.unwrap_or(if is_local { SslMode::Disable } else { SslMode::Require });
    config.ssl_mode(mode);
    let roots = match roots {
        _ if mode == SslMode::Disable => Roots::Unused,
        Some(path) => Roots::File(path),
        None => Roots::System,
    };
    Ok(Server { config, roots })
}

fn ssl_mode(text: &str) -> Result<SslMode, OpenError> {
    match text {
        "disable" => Ok(SslMode::Disable),
        // `allow` uses TLS only if the server requires it. `prefer` works with such a server too.
        "allow" | "prefer" => Ok(SslMode::Prefer),
        "require" | "verify-ca" | "verify-full" => Ok(SslMode::Require),
        _ => Err(url_error("its `sslmode` is not known")),
    }
}

fn url_error(reason: &'static str) -> OpenError {
    OpenError::Url { reason, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, mode: SslMode, roots: &Roots) {
        let server = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!((server.config.get_ssl_mode(), &server.roots), (mode, roots), "{url}");
    }

    #[test]
    fn tls_is_demanded_unless_the_url_says_otherwise() {
        check("postgres://h/db", SslMode::Require, &Roots::System);
        check("postgresql://u:p@h:5433/db", SslMode::Require, &Roots::System);
        check("postgres://h/db?sslmode=require", SslMode::Require, &Roots::System);
        check("postgres://h/db?sslmode=verify-full", SslMode::Require, &Roots::System);
        check("postgres://h/db?sslmode=prefer", SslMode::Prefer, &Roots::System);
        check("postgres://h/db?sslmode=disable", SslMode::Disable, &Roots::Unused);
        let roots = Roots::File("/etc/c a.pem".into());
        check("postgres://h/db?sslrootcert=/etc/c%20a.pem", SslMode::Require, &roots);
        check("postgres://h1:1,h2:2/db", SslMode::Require, &Roots::System);
        check("postgres:///db?host=/run/postgresql", SslMode::Disable, &Roots::Unused);
        check("postgres://u@%2Frun%2Fpostgresql/db", SslMode::Disable, &Roots::Unused);
        check("postgres:///db?host=/run/postgresql&sslmode=require", SslMode::Require, &Roots::System);
        check("postgres://h/db?host=/run/postgresql", SslMode::Require, &Roots::System);
    }

    #[test]
    fn a_setting_keeps_its_spaces() {
        let server = parse("postgres://h/db?options=-c%20geqo%3Doff&sslmode=disable").expect("a URL");
        assert_eq!(server.config.get_options(), Some("-c geqo=off"));
    }

    #[test]
    fn a_url_with_faults_is_refused_without_its_password() {
        for url in [
            "postgres://u:hunter2@h/db?sslmode=maybe",
            "postgres://u:hunter2@h:port/db",
            "postgres://u:hunter2@h/db?nonsense=1",
            "postgres:///db",
        ] {
            let error = parse(url).expect_err(url);
            let mut text = format!("{error} {error:?}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text = format!("{text} {cause} {cause:?}");
                source = cause.source();
            }
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
