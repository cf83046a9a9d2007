//! The connection pool: idle connections that wait for the next request of the same grant.
//!
//! The pool key combines the judge's identity of the grant with scheme, host, port and header limits. It
//! separates grants for three purposes:
//!
//! - A server cannot link the requests of two grants.
//! - A secret, or a login that is bound to the connection, serves only the grant that sent it.
//! - A response that a server has prepared for one grant cannot reach another.

use std::{cell::RefCell, time::Duration};

use tokio::time::{Instant, sleep_until};

use crate::{
    PoolIdentity, RequestLimits,
    connection::Connection,
    target::{Scheme, Target},
};

/// The grant, origin and limits for which a connection is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolKey {
    identity: PoolIdentity,
    scheme: Scheme,
    host: String,
    port: u16,
    /// The limits `header_bytes` and `header_count`, which are fixed when a connection is opened.
    header_limits: (usize, usize),
}

impl PoolKey {
    pub(crate) fn new(identity: PoolIdentity, target: &Target, limits: &RequestLimits) -> Self {
        let header_limits = (limits.header_bytes, limits.header_count);
        Self { identity, scheme: target.scheme, host: target.host.clone(), port: target.port, header_limits }
    }
}

/// The idle connections of one thread.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    /// The connections, sorted by idle time with the longest first.
    idle: RefCell<Vec<IdleConnection>>,
}

struct IdleConnection {
    key: PoolKey,
    connection: Connection,
    idle_since: Instant,
}

impl IdleConnection {
    fn expires_at(&self) -> Instant {
        (self.idle_since + MAX_IDLE_TIME).min(self.connection.opened_at + MAX_AGE)
    }
}

impl ConnectionPool {
    /// Takes the most recently used quiet connection of this key. Closes more recently used connections that
    /// are no longer quiet.
    pub(crate) fn take(&self, key: &PoolKey) -> Option<Connection> {
        self.close_expired();
        let mut idle_connections = self.idle.borrow_mut();
        while let Some(index) = idle_connections.iter().rposition(|entry| entry.key == *key) {
            let mut connection = idle_connections.remove(index).connection;
            if connection.can_be_reused() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose last response was read to its end, if it is quiet. If the key or the pool has
    /// too many connections, closes the connection that has been idle longest.
    pub(crate) fn add(&self, key: PoolKey, mut connection: Connection) {
        if !connection.can_be_reused() {
            return;
        }
        self.close_expired();
        let mut idle_connections = self.idle.borrow_mut();
        if idle_connections.iter().filter(|entry| entry.key == key).count() >= MAX_IDLE_OF_A_GRANT
            && let Some(oldest) = idle_connections.iter().position(|entry| entry.key == key)
        {
            idle_connections.remove(oldest);
        }
        if idle_connections.len() >= MAX_IDLE_CONNECTIONS {
            idle_connections.remove(0);
        }
        idle_connections.push(IdleConnection { key, connection, idle_since: Instant::now() });
    }

    /// Waits until a connection reaches [`MAX_IDLE_TIME`] or [`MAX_AGE`], and closes it. Never completes
    /// while the pool is empty.
    ///
    /// # Cancellation
    /// Cancel-safe: no connection is lost.
    pub(crate) async fn expire(&self) {
        let next_expiry = self.idle.borrow().iter().map(IdleConnection::expires_at).min();
        match next_expiry {
            Some(expiry) => sleep_until(expiry).await,
            None => std::future::pending().await,
        }
        self.close_expired();
    }

    fn close_expired(&self) {
        let now = Instant::now();
        self.idle.borrow_mut().retain(|entry| now < entry.expires_at());
    }
}

/// The maximum number of idle connections of a thread, however many servers tools contact. Each holds a
/// descriptor and a buffer of at most the header limit.
pub(crate) const MAX_IDLE_CONNECTIONS: usize = 32;

/// The maximum number of idle connections of one grant to one origin: as many as browsers keep to a host.
pub(crate) const MAX_IDLE_OF_A_GRANT: usize = 6;

/// The idle time after which a connection is closed. Common servers close theirs after 5 to 75 seconds.
pub(crate) const MAX_IDLE_TIME: Duration = Duration::from_secs(30);

/// The age after which a connection takes no further request. It also bounds how long a resolved address is trusted.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio::net::TcpStream;

    use super::*;
    use crate::TrustedRoots;

    fn limits() -> RequestLimits {
        RequestLimits::default()
    }

    fn target(url: &str, port: u16) -> Target {
        Target::parse(&url.parse().unwrap(), &[port].into()).unwrap()
    }

    /// Opens a connection that has served no request. Also returns the server's end, which keeps the connection open.
    async fn connection(target: &Target) -> (Connection, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let tcp = TcpStream::connect(address).await.unwrap();
        let tls = TrustedRoots::empty().client_config().unwrap();
        let connection = Connection::open((address, tcp), target, &tls, &limits()).await.unwrap();
        (connection, listener.accept().unwrap().0)
    }

    #[tokio::test]
    async fn a_key_is_that_of_one_grant_to_one_origin() {
        let key_for = |grant: &str, url: &str, limits: &RequestLimits| {
            let url: url::Url = url.parse().unwrap();
            let port = url.port_or_known_default().unwrap();
            PoolKey::new(PoolIdentity::new(grant), &target(url.as_str(), port), limits)
        };
        let key = key_for("grant", "http://a.test:8080/one", &limits());
        assert_eq!(key, key_for("grant", "http://a.test:8080/two?query", &limits()));
        for other_key in [
            key_for("other", "http://a.test:8080/one", &limits()),
            key_for("grant", "https://a.test:8080/one", &limits()),
            key_for("grant", "http://b.test:8080/one", &limits()),
            key_for("grant", "http://a.test:8081/one", &limits()),
            key_for("grant", "http://a.test:8080/one", &RequestLimits { header_count: 7, ..limits() }),
            key_for("grant", "http://a.test:8080/one", &RequestLimits { header_bytes: 9000, ..limits() }),
        ] {
            assert_ne!(key, other_key);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_for_its_time_only() {
        let target = target("http://a.test/", 80);
        let key = PoolKey::new(PoolIdentity::new("grant"), &target, &limits());
        let pool = ConnectionPool::default();
        let (idle_connection, _open) = connection(&target).await;
        let start = Instant::now();
        pool.add(key.clone(), idle_connection);
        tokio::time::advance(MAX_IDLE_TIME - Duration::from_millis(1)).await;
        let idle_connection = pool.take(&key).expect("still kept");
        // The idle time restarts at zero, but the age does not.
        pool.add(key.clone(), idle_connection);
        pool.expire().await;
        assert!(pool.idle.borrow().is_empty());
        assert!(start.elapsed() >= MAX_IDLE_TIME * 2 - Duration::from_millis(1));
        assert!(pool.take(&key).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_connection_takes_no_further_request() {
        let target = target("http://a.test/", 80);
        let key = PoolKey::new(PoolIdentity::new("grant"), &target, &limits());
        let pool = ConnectionPool::default();
        let (idle_connection, _open) = connection(&target).await;
        tokio::time::advance(MAX_AGE - Duration::from_secs(1)).await;
        pool.add(key.clone(), idle_connection);
        let idle_connection = pool.take(&key).expect("young enough");
        pool.add(key.clone(), idle_connection);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pool.take(&key).is_none());
    }
}
