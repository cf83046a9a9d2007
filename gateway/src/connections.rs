//! Serves the connections of a gateway, with limits on their number and duration.

use std::time::Duration;

use axum::{Router, body::Body};
use hyper::{Request, body::Incoming};
use portcullis_http_server::{Connections, HttpLimits};
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

/// The maximum number of connections, including streams: 16,384. The limit is lower if the process may open
/// fewer than twice as many file descriptors, because the store and the tools need some.
const MAX_CONNECTIONS: usize = 16_384;

/// The timeout of the head of a request: 10 s. A connection without a request ends after this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of the head of a request: 16 KiB.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// How long a stopping gateway waits for responses in flight: 10 s.
const GRACE: Duration = Duration::from_secs(10);

/// Serves the clients of a listener until `stop` completes.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let limits = HttpLimits {
        max_connections: max_connections(),
        head_timeout: HEAD_TIMEOUT,
        max_head_bytes: MAX_HEAD_BYTES,
    };
    let handler = move |request: Request<Incoming>| {
        let answering = router.clone().oneshot(request.map(Body::new));
        // The router is infallible.
        async move { answering.await.unwrap_or_else(|error| match error {}) }
    };
    Connections::accept(listener, &limits, handler, stop).await.close(GRACE).await;
}

fn max_connections() -> usize {
    // `None` means that the system sets no limit.
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 2).unwrap_or(usize::MAX).min(MAX_CONNECTIONS)
}
