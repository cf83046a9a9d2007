//! The threads: started, confined, and given requests.
//!
//! A thread has a runtime of its own, which exists before the thread is confined. It proves its confinement
//! before each request. Requests on it take turns; none of them starts a task or a thread.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::TcpStream,
    num::NonZeroUsize,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc as blocking,
    },
    thread,
};

use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use portcullis_confine::{
    Canary, NetworkRules, Posture, ProvenThread, Requirement, ThreadConfinement, confine_current_thread,
};
use rustls::ClientConfig;
use tokio::{
    runtime::Runtime,
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    EgressError, FetchError, Judge, NameSettings, Request, Response, TrustedRoots, TunnelEnd, TunnelLimits,
    TunnelWatch, Url, dial, fetch::Client, pool::Pool, proxy::Proxy, resolve::Resolver, tunnel,
};

/// The settings of the threads. There is no default: each of them grants power.
#[derive(Clone, Debug)]
pub struct EgressConfig {
    /// The target of the threads' attempts, whose refusal proves the confinement.
    pub canary: Canary,
    /// Whether the threads must have Landlock, which holds the ports.
    pub landlock: Requirement,
    /// Whether the threads must have the system-call filter, which refuses other protocols, files and programs.
    pub seccomp: Requirement,
    /// The ports that requests may go to. The name servers' ports are opened besides, for names alone.
    pub ports: BTreeSet<u16>,
    /// The proxy of all requests, tunnels and connections, as `http://host:port`. The threads may then connect to its
    /// port and to no other one; [`Self::ports`] bounds the ports of the requests that it gets. Name servers are asked
    /// for the proxy's name alone.
    pub proxy: Option<Url>,
    /// The configuration of name resolution.
    pub names: NameSettings,
    /// The trusted certificates.
    pub roots: TrustedRoots,
    /// The number of threads. One does for many requests: they wait more than they compute.
    pub threads: NonZeroUsize,
}

/// Confined threads that make requests. Dropping it ends them.
pub struct Egress {
    threads: Vec<mpsc::Sender<Job>>,
    /// The thread that the next request is offered to first.
    next: AtomicUsize,
    posture: Posture,
}

/// Without the queues.
impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress")
            .field("threads", &self.threads.len())
            .field("posture", &self.posture.summary())
            .finish_non_exhaustive()
    }
}

impl Egress {
    /// Starts the threads, and returns once each has confined itself and proved it.
    ///
    /// # Errors
    /// If a thread, its runtime, its resolver or TLS cannot be set up, or a required layer does not hold. No
    /// thread remains.
    pub fn start(settings: EgressConfig) -> Result<Self, EgressError> {
        let tls = settings.roots.client_config()?;
        let proxy = settings.proxy.as_ref().map(Proxy::of).transpose()?;
        let settings = Arc::new((settings, proxy));
        let (mut threads, mut posture) = (Vec::new(), None);
        for number in 0..settings.0.threads.get() {
            let (jobs, queue) = mpsc::channel(MAX_QUEUED_REQUESTS);
            let (ready, is_ready) = blocking::sync_channel(1);
            let (settings, tls) = (Arc::clone(&settings), Arc::clone(&tls));
            thread::Builder::new()
                .name(format!("egress-{number}"))
                .spawn(move || work(&settings, tls, queue, &ready))
                .map_err(|source| EgressError::Thread { source })?;
            let proven = is_ready.recv().unwrap_or_else(|_panicked| {
                Err(EgressError::Thread { source: io::Error::other("it panicked") })
            })?;
            posture = Some(proven);
            threads.push(jobs);
        }
        let none = || EgressError::Thread { source: io::Error::other("there is none") };
        Ok(Self { threads, next: AtomicUsize::new(0), posture: posture.ok_or_else(none)? })
    }

    /// The threads' proven posture, for audit rows.
    #[must_use]
    pub fn posture(&self) -> &Posture {
        &self.posture
    }

    /// Whether a thread serves. One ends when it cannot prove its confinement again, also where the proof failed for
    /// want of a descriptor; when all have ended, only a new client serves.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.threads.iter().any(|jobs| !jobs.is_closed())
    }

    /// Makes a request and follows its redirects, as far as the judge lets them. The judge's `total` counts from here:
    /// a request may wait for a thread.
    ///
    /// # Cancellation
    /// Cancelling the token, or dropping the future, closes the request's connection. A server may have acted on
    /// the request before.
    ///
    /// # Errors
    /// The judge's refusal, or the reason why there is no response. A status of 4xx or 5xx is a response.
    pub async fn send(
        &self,
        judge: Arc<dyn Judge>,
        request: Request,
        cancel: CancellationToken,
    ) -> Result<Response, FetchError> {
        let cancel = cancel.child_token();
        let _cancel_on_drop = cancel.clone().drop_guard();
        let (answer, mut answered) = oneshot::channel();
        let (limit, begun) = (judge.limits().total, Arc::new(AtomicBool::new(false)));
        let job = RequestJob { judge, request, cancel: cancel.clone(), begun: Arc::clone(&begun), answer };
        self.submit(Job::Request(job))?;
        if let Ok(answer) = timeout(limit, &mut answered).await {
            return answer.unwrap_or(Err(FetchError::Stopped));
        }
        cancel.cancel();
        // What the judge knows of the request is final once the thread has let go of it.
        if begun.load(Ordering::SeqCst) {
            let _cancelled = answered.await;
        }
        Err(FetchError::TotalTimeout { limit })
    }

    /// Serves the connection of a client that asks for a tunnel, to its end. `stream` must not block. The judge is
    /// asked about the tunnel as about a request with the method `CONNECT`, and about all addresses of the host.
    /// `watch` has the facts, those of a refusal among them.
    ///
    /// # Cancellation
    /// Cancelling the token, or dropping the future, closes both connections.
    pub async fn tunnel(
        &self,
        judge: Arc<dyn Judge>,
        stream: TcpStream,
        limits: TunnelLimits,
        watch: TunnelWatch,
        cancel: CancellationToken,
    ) {
        let cancel = cancel.child_token();
        let _cancel_on_drop = cancel.clone().drop_guard();
        let (done, is_done) = oneshot::channel();
        let job = TunnelJob { judge, stream, limits, watch: watch.clone(), cancel, _done: done };
        match self.submit(Job::Tunnel(job)) {
            // The sender is dropped at the end, with or without a word.
            Ok(()) => drop(is_done.await),
            Err(error) => watch.refuse(&error),
        }
        // Does nothing unless the thread has ended.
        watch.end(TunnelEnd::Broken);
    }

    /// Connects to the host and port of a URL, for a client of this process that speaks its own protocol. The judge
    /// is asked as about a tunnel, whose host may be an address here. The stream does not block, and has no TLS.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// The judge's refusal, or the reason why there is no connection.
    pub async fn dial(&self, judge: Arc<dyn Judge>, url: Url) -> Result<TcpStream, FetchError> {
        let cancel = CancellationToken::new();
        let _cancel_on_drop = cancel.clone().drop_guard();
        let (answer, answered) = oneshot::channel();
        self.submit(Job::Dial(DialJob { judge, url, cancel, answer }))?;
        answered.await.unwrap_or(Err(FetchError::Stopped))
    }

    /// Offers the job to each thread in turn.
    fn submit(&self, mut job: Job) -> Result<(), FetchError> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut error = FetchError::Stopped;
        for offset in 0..self.threads.len() {
            let index = first.wrapping_add(offset) % self.threads.len();
            match self.threads[index].try_send(job) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back)) => (job, error) = (back, FetchError::Busy),
                Err(TrySendError::Closed(back)) => job = back,
            }
        }
        Err(error)
    }
}

/// Work on its way to a thread.
enum Job {
    Request(RequestJob),
    Tunnel(TunnelJob),
    Dial(DialJob),
}

/// One connection that is handed out.
struct DialJob {
    judge: Arc<dyn Judge>,
    url: Url,
    cancel: CancellationToken,
    answer: oneshot::Sender<Result<TcpStream, FetchError>>,
}

/// One client's connection.
struct TunnelJob {
    judge: Arc<dyn Judge>,
    stream: TcpStream,
    limits: TunnelLimits,
    watch: TunnelWatch,
    cancel: CancellationToken,
    /// Dropped at the end.
    _done: oneshot::Sender<()>,
}

/// One request.
struct RequestJob {
    judge: Arc<dyn Judge>,
    request: Request,
    cancel: CancellationToken,
    /// Whether the thread works on it.
    begun: Arc<AtomicBool>,
    answer: oneshot::Sender<Result<Response, FetchError>>,
}

/// The life of a thread.
fn work(
    settings: &(EgressConfig, Option<Proxy>),
    tls: Arc<ClientConfig>,
    mut queue: mpsc::Receiver<Job>,
    ready: &blocking::SyncSender<Result<Posture, EgressError>>,
) {
    let told = match set_up(settings, tls) {
        Ok((runtime, client, proven)) => {
            if ready.send(Ok(proven.posture().clone())).is_ok() {
                runtime.block_on(serve(&client, &proven, &mut queue));
            }
            Ok(())
        }
        Err(error) => ready.send(Err(error)),
    };
    // The starter waits for it, unless it is gone itself.
    drop(told);
}

/// Everything that needs a file, a thread or a new descriptor of the runtime, and then the confinement.
fn set_up(
    (settings, proxy): &(EgressConfig, Option<Proxy>),
    tls: Arc<ClientConfig>,
) -> Result<(Runtime, Client, ProvenThread), EgressError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| EgressError::Thread { source })?;
    let resolver = Resolver::build(&settings.names)?;
    let client =
        Client { resolver, tls, ports: settings.ports.clone(), proxy: proxy.clone(), pool: Pool::default() };
    let rules = ThreadConfinement {
        landlock: settings.landlock,
        seccomp: settings.seccomp,
        mounts: Vec::new(),
        network: Some(NetworkRules { ports: ports(settings, proxy.as_ref()) }),
        canary: settings.canary.clone(),
    };
    let proven = confine_current_thread(&rules).map_err(|source| EgressError::Confine { source })?;
    Ok((runtime, client, proven))
}

/// The ports that a thread may connect to.
fn ports(settings: &EgressConfig, proxy: Option<&Proxy>) -> BTreeSet<u16> {
    let names = settings.names.servers.iter().map(std::net::SocketAddr::port);
    match proxy {
        None => settings.ports.iter().copied().chain(names).collect(),
        Some(proxy) => names.filter(|_| proxy.has_name()).chain([proxy.port]).collect(),
    }
}

/// Serves requests until the queue is closed, or the confinement is in doubt.
async fn serve(client: &Client, proven: &ProvenThread, queue: &mut mpsc::Receiver<Job>) {
    let (mut running, mut tunnels) = (FuturesUnordered::new(), FuturesUnordered::new());
    loop {
        tokio::select! {
            job = queue.recv(), if running.len() < MAX_RUNNING_REQUESTS => {
                let Some(job) = job else { return };
                if let Err(source) = proven.reprove() {
                    // Dropping the others closes their connections.
                    job.refuse(FetchError::NotConfined { source });
                    return;
                }
                match job {
                    Job::Request(job) => running.push(run(client, job).boxed_local()),
                    Job::Dial(job) => running.push(hand_out(client, job).boxed_local()),
                    Job::Tunnel(job) if tunnels.len() < MAX_TUNNELS => tunnels.push(carry(client, job)),
                    // Not left in the queue: a tunnel may last for long, and requests wait behind it.
                    Job::Tunnel(_) => job.refuse(FetchError::Busy),
                }
            }
            Some(()) = running.next(), if !running.is_empty() => {}
            Some(()) = tunnels.next(), if !tunnels.is_empty() => {}
            () = client.pool.expire() => {}
        }
    }
}

impl Job {
    fn refuse(self, error: FetchError) {
        match self {
            Self::Request(job) => drop(job.answer.send(Err(error))),
            Self::Tunnel(job) => job.watch.refuse(&error),
            Self::Dial(job) => drop(job.answer.send(Err(error))),
        }
    }
}

/// Serves one tunnel. A panic is the end of that tunnel, and not of the others.
async fn carry(client: &Client, job: TunnelJob) {
    let TunnelJob { judge, stream, limits, watch, cancel, _done } = job;
    let carried = AssertUnwindSafe(tunnel::carry(client, &*judge, stream, &limits, &watch)).catch_unwind();
    let end = tokio::select! {
        biased;
        () = cancel.cancelled() => TunnelEnd::Cancelled,
        end = carried => end.unwrap_or(TunnelEnd::Broken),
    };
    watch.end(end);
}

/// Makes one connection for somebody else. A panic is the end of that connection, and not of the thread's others.
async fn hand_out(client: &Client, job: DialJob) {
    let connected = AssertUnwindSafe(dial::connect(client, &*job.judge, &job.url)).catch_unwind();
    let result = tokio::select! {
        biased;
        () = job.cancel.cancelled() => Err(FetchError::Cancelled),
        result = connected => result.unwrap_or(Err(FetchError::Stopped)),
    };
    let _gone = job.answer.send(result);
}

/// Makes one request. A panic is the end of that request, and not of the thread's others.
async fn run(client: &Client, job: RequestJob) {
    job.begun.store(true, Ordering::SeqCst);
    let fetched = AssertUnwindSafe(client.fetch(&*job.judge, job.request)).catch_unwind();
    let result = tokio::select! {
        // A result that comes together with the cancellation is dropped: the caller is gone.
        biased;
        () = job.cancel.cancelled() => Err(FetchError::Cancelled),
        result = fetched => result.unwrap_or(Err(FetchError::Stopped)),
    };
    let _gone = job.answer.send(result);
}

/// Requests that wait for a thread. More are refused: callers have limits of their own, and a queue without a
/// bound would hold bodies without a bound.
const MAX_QUEUED_REQUESTS: usize = 128;

/// Requests that a thread works on at a time. Each may hold a body of the limit's size.
const MAX_RUNNING_REQUESTS: usize = 64;

/// Tunnels that a thread carries at a time. Each has two descriptors and 32 KiB of buffers.
const MAX_TUNNELS: usize = 1024;

#[cfg(test)]
impl Egress {
    /// A client whose threads have ended.
    pub(crate) fn ended(mut self) -> Self {
        let (ended, _dropped) = mpsc::channel(1);
        self.threads = vec![ended];
        self
    }
}
