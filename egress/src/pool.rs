//! Connections that have served a request and wait for the next one of the same grant.
//!
//! The key is the grant's, as the judge gives it, with scheme, host and port. It separates grants in three ways:
//!
//! - A server cannot link the requests of two grants.
//! - A secret, or a login that is bound to the connection, serves the grant alone that has sent it.
//! - An answer that a server has prepared for one grant cannot reach another.

use std::{cell::RefCell, time::Duration};

use tokio::time::{Instant, sleep_until};

use crate::{
    GrantKey, RequestLimits,
    connection::Connection,
    target::{Scheme, Target},
};

/// For whom a connection may be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolKey {
    grant: GrantKey,
    scheme: Scheme,
    host: String,
    port: u16,
    /// The limits of headers, which a connection keeps from its beginning.
    header_limits: (usize, usize),
}

impl PoolKey {
    pub(crate) fn of(grant: GrantKey, target: &Target, limits: &RequestLimits) -> Self {
        let header_limits = (limits.header_bytes, limits.header_count);
        Self { grant, scheme: target.scheme, host: target.host.clone(), port: target.port, header_limits }
    }
}

/// The idle connections of one thread.
#[derive(Default)]
pub(crate) struct Pool {
    /// The one that has waited longest comes first.
    idle: RefCell<Vec<Idle>>,
}

struct Idle {
    key: PoolKey,
    connection: Connection,
    since: Instant,
}

impl Idle {
    fn end(&self) -> Instant {
        (self.since + MAX_IDLE_TIME).min(self.connection.opened + MAX_AGE)
    }
}

impl Pool {
    /// A quiet connection of this key, the one that was used last first. Those that are not quiet are closed.
    pub(crate) fn take(&self, key: &PoolKey) -> Option<Connection> {
        self.close_old();
        let mut idle = self.idle.borrow_mut();
        while let Some(index) = idle.iter().rposition(|idle| idle.key == *key) {
            let mut connection = idle.remove(index).connection;
            if connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose last answer was read to its end, if it is quiet. Closes the one that has waited longest
    /// where there would be too many.
    pub(crate) fn keep(&self, key: PoolKey, mut connection: Connection) {
        if !connection.is_quiet() {
            return;
        }
        self.close_old();
        let mut idle = self.idle.borrow_mut();
        if idle.iter().filter(|idle| idle.key == key).count() >= MAX_IDLE_OF_A_GRANT
            && let Some(oldest) = idle.iter().position(|idle| idle.key == key)
        {
            idle.remove(oldest);
        }
        if idle.len() >= MAX_IDLE_CONNECTIONS {
            idle.remove(0);
        }
        idle.push(Idle { key, connection, since: Instant::now() });
    }

    /// Waits for the end of the next connection's time, and closes it. Never ends while there is none.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub(crate) async fn expire(&self) {
        let next = self.idle.borrow().iter().map(Idle::end).min();
        match next {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
        self.close_old();
    }

    fn close_old(&self) {
        let now = Instant::now();
        self.idle.borrow_mut().retain(|idle| now < idle.end());
    }
}

/// Idle connections of a thread. Each holds a descriptor and at most a buffer of the headers' limit; the bound keeps
/// both few, whatever number of servers tools ask.
pub(crate) const MAX_IDLE_CONNECTIONS: usize = 32;

/// Idle connections of one grant to one origin: as many as browsers keep to a host.
pub(crate) const MAX_IDLE_OF_A_GRANT: usize = 6;

/// How long a connection waits for the next request. Common servers close after 5 to 75 seconds.
pub(crate) const MAX_IDLE_TIME: Duration = Duration::from_secs(30);

/// The age at which a connection takes no further request. It also bounds how long a resolved address is trusted.
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
        Target::of(&url.parse().unwrap(), &[port].into()).unwrap()
    }

    /// A connection that has served nothing yet. Returns the server's end, which keeps it open.
    async fn connection(target: &Target) -> (Connection, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let tcp = TcpStream::connect(address).await.unwrap();
        let tls = TrustedRoots::none().client_config().unwrap();
        let connection = Connection::open((address, tcp), target, &tls, &limits()).await.unwrap();
        (connection, listener.accept().unwrap().0)
    }

    #[tokio::test]
    async fn a_key_is_that_of_one_grant_to_one_origin() {
        let of = |grant: &str, url: &str, limits: &RequestLimits| {
            let url: url::Url = url.parse().unwrap();
            let port = url.port_or_known_default().unwrap();
            PoolKey::of(GrantKey::new(grant), &target(url.as_str(), port), limits)
        };
        let own = of("grant", "http://a.test:8080/one", &limits());
        assert_eq!(own, of("grant", "http://a.test:8080/two?query", &limits()));
        for other in [
            of("other", "http://a.test:8080/one", &limits()),
            of("grant", "https://a.test:8080/one", &limits()),
            of("grant", "http://b.test:8080/one", &limits()),
            of("grant", "http://a.test:8081/one", &limits()),
            of("grant", "http://a.test:8080/one", &RequestLimits { header_count: 7, ..limits() }),
            of("grant", "http://a.test:8080/one", &RequestLimits { header_bytes: 9000, ..limits() }),
        ] {
            assert_ne!(own, other);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_for_its_time_only() {
        let target = target("http://a.test/", 80);
        let key = PoolKey::of(GrantKey::new("grant"), &target, &limits());
        let pool = Pool::default();
        let (one, _open) = connection(&target).await;
        let start = Instant::now();
        pool.keep(key.clone(), one);
        tokio::time::advance(MAX_IDLE_TIME - Duration::from_millis(1)).await;
        let one = pool.take(&key).expect("still kept");
        // Its idle time begins anew, and its age goes on.
        pool.keep(key.clone(), one);
        pool.expire().await;
        assert!(pool.idle.borrow().is_empty());
        assert!(start.elapsed() >= MAX_IDLE_TIME * 2 - Duration::from_millis(1));
        assert!(pool.take(&key).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_connection_takes_no_further_request() {
        let target = target("http://a.test/", 80);
        let key = PoolKey::of(GrantKey::new("grant"), &target, &limits());
        let pool = Pool::default();
        let (one, _open) = connection(&target).await;
        tokio::time::advance(MAX_AGE - Duration::from_secs(1)).await;
        pool.keep(key.clone(), one);
        let one = pool.take(&key).expect("young enough");
        pool.keep(key.clone(), one);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pool.take(&key).is_none());
    }
}
