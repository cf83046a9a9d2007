//! The threads that make requests: their start, confinement and jobs.
//!
//! Each thread builds its own runtime before it is confined, and proves its confinement before each job. Its
//! jobs run concurrently on that runtime. None of them starts a task or a thread.

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
    CanaryFile, NetworkRules, Posture, ProvenThread, Requirement, ThreadConfinement, confine_current_thread,
};
use rustls::ClientConfig;
use tokio::{
    runtime::Runtime,
    sync::{
        OwnedSemaphorePermit,
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    DnsConfig, EgressError, FetchError, Judge, Request, Response, TrustedRoots, TunnelEnd, TunnelLimits,
    TunnelShare, TunnelWatch, Url, dial_request,
    fetch::FetchClient,
    pool::ConnectionPool,
    proxy::Proxy,
    resolve::Resolver,
    stream::{self, StreamedResponse},
    tunnel,
};

/// The settings of the threads. There is no default, because most settings decide what the threads may reach.
#[derive(Clone, Debug)]
pub struct EgressConfig {
    /// The file that threads under Landlock must fail to open, which proves their confinement.
    pub canary: CanaryFile,
    /// Whether the threads must have Landlock, which bounds the ports.
    pub landlock: Requirement,
    /// Whether the threads must have the system-call filter, which refuses other protocols, files and programs.
    pub seccomp: Requirement,
    /// The ports that requests may go to. Threads may also connect to name servers, but only to resolve
    /// names.
    pub ports: BTreeSet<u16>,
    /// The proxy of all requests, tunnels and connections, as `http://host:port`. With a proxy the threads
    /// connect to its port only. If its host is a name, they also ask name servers for this name.
    /// [`Self::ports`] then limits the ports that the proxy is asked for.
    pub proxy: Option<Url>,
    /// The configuration of name resolution.
    pub names: DnsConfig,
    /// The certificates that servers are checked against.
    pub roots: TrustedRoots,
    /// The number of threads. One thread serves many requests, which mostly wait for the network.
    pub threads: NonZeroUsize,
}

/// The confined threads that make requests. Dropping the value ends them.
pub struct Egress {
    job_senders: Vec<mpsc::Sender<Job>>,
    /// The thread that the next request is offered to first.
    next_index: AtomicUsize,
    posture: Posture,
}

/// Omits the queues.
impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress")
            .field("threads", &self.job_senders.len())
            .field("posture", &self.posture.summary())
            .finish_non_exhaustive()
    }
}

impl Egress {
    /// Starts the threads, and returns after each of them has confined itself and proved its confinement.
    ///
    /// # Errors
    /// [`EgressError::Proxy`], [`EgressError::Thread`], [`EgressError::Hosts`], [`EgressError::Resolver`] or
    /// [`EgressError::Tls`] if a part cannot be set up; [`EgressError::Confine`] if a required layer does not hold. No
    /// thread remains.
    pub fn start(settings: EgressConfig) -> Result<Self, EgressError> {
        let tls = settings.roots.client_config()?;
        let proxy = settings.proxy.as_ref().map(Proxy::parse).transpose()?;
        let settings = Arc::new(ThreadSettings { config: settings, proxy });
        let (mut job_senders, mut posture) = (Vec::new(), None);
        for number in 0..settings.config.threads.get() {
            let (jobs, queue) = mpsc::channel(MAX_QUEUED_REQUESTS);
            let (ready, ready_receiver) = blocking::sync_channel(1);
            let (settings, tls) = (Arc::clone(&settings), Arc::clone(&tls));
            thread::Builder::new()
                .name(format!("egress-{number}"))
                .spawn(move || run_thread(&settings, tls, queue, &ready))
                .map_err(|source| EgressError::Thread { source })?;
            let proven =
                ready_receiver.recv().unwrap_or_else(|_panicked| Err(EgressError::ThreadPanicked))?;
            posture = Some(proven);
            job_senders.push(jobs);
        }
        let no_thread = || EgressError::Thread { source: io::Error::other("there is none") };
        Ok(Self { job_senders, next_index: AtomicUsize::new(0), posture: posture.ok_or_else(no_thread)? })
    }

    /// Returns the threads' proven posture, for audit rows.
    #[must_use]
    pub fn posture(&self) -> &Posture {
        &self.posture
    }

    /// Returns whether at least one thread is serving. A thread ends when it cannot prove its confinement
    /// again, even if it only lacks a free descriptor. After all have ended, a new client must be started.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.job_senders.iter().any(|jobs| !jobs.is_closed())
    }

    /// Makes a request and follows its redirects, as far as the judge allows. `total` includes the wait for a
    /// thread.
    ///
    /// # Cancellation
    /// Cancelling the token, or dropping the future, closes the request's connection. The server may already
    /// have acted on the request.
    ///
    /// # Errors
    /// [`FetchError::Refused`] for the judge's refusal. The other variants give the reason why there is no
    /// response. A status of 4xx or 5xx is a response.
    pub async fn send(
        &self,
        judge: Arc<dyn Judge>,
        request: Request,
        cancel: CancellationToken,
    ) -> Result<Response, FetchError> {
        let cancel = cancel.child_token();
        let _cancel_on_drop = cancel.clone().drop_guard();
        self.submit_and_wait(judge, request, &cancel, Job::Request).await
    }

    /// Makes a request like [`Self::send`], and returns as soon as the head of the response has arrived. The
    /// body is read as the caller takes it. The judge's timeout `total` includes the body.
    ///
    /// Each piece of the body is redacted with the secrets that are known when it is passed on.
    ///
    /// # Cancellation
    /// As in [`Self::send`]. Dropping the response also closes the connection, unless its body has ended.
    ///
    /// # Errors
    /// As in [`Self::send`], and [`FetchError::Busy`] if the thread has reached its limit of streamed
    /// responses. Faults of the body are returned with its pieces.
    pub async fn stream(
        &self,
        judge: Arc<dyn Judge>,
        request: Request,
        cancel: CancellationToken,
    ) -> Result<StreamedResponse, FetchError> {
        let cancel = cancel.child_token();
        let cancel_on_drop = cancel.clone().drop_guard();
        let response = self.submit_and_wait(judge, request, &cancel, Job::Stream).await?;
        // From here on, dropping the response cancels the request.
        cancel_on_drop.disarm();
        Ok(response)
    }

    /// Submits a request to a thread, and awaits the response within the judge's `total`.
    async fn submit_and_wait<T>(
        &self,
        judge: Arc<dyn Judge>,
        request: Request,
        cancel: &CancellationToken,
        job: fn(RequestJob<T>) -> Job,
    ) -> Result<T, FetchError> {
        let (response_sender, mut response) = oneshot::channel();
        let (limit, has_begun) = (judge.limits().total_timeout, Arc::new(AtomicBool::new(false)));
        let (cancel_job, job_has_begun) = (cancel.clone(), Arc::clone(&has_begun));
        self.submit(job(RequestJob {
            judge,
            request,
            cancel: cancel_job,
            has_begun: job_has_begun,
            result_sender: response_sender,
        }))?;
        if let Ok(result) = timeout(limit, &mut response).await {
            return result.unwrap_or_else(|_dropped| {
                Err(if cancel.is_cancelled() { FetchError::Cancelled } else { FetchError::Stopped })
            });
        }
        cancel.cancel();
        // Wait until the thread has dropped the request, so that the judge is not called after the return.
        if has_begun.load(Ordering::SeqCst) {
            let _cancelled = response.await;
        }
        Err(FetchError::TotalTimeout { limit })
    }

    /// Serves the connection of a client that asks for a tunnel, until it ends. `stream` must be
    /// non-blocking. The judge is asked about a request with the method `CONNECT`, and about all addresses of
    /// the host. `watch` receives the facts, including those of a refusal. If `tunnel_share` or the thread has no
    /// free tunnel, the client gets status 503 and `busy`.
    ///
    /// # Cancellation
    /// Cancelling the token, or dropping the future, closes both connections.
    pub async fn tunnel(
        &self,
        judge: Arc<dyn Judge>,
        stream: TcpStream,
        limits: TunnelLimits,
        tunnel_share: TunnelShare,
        watch: TunnelWatch,
        cancel: CancellationToken,
    ) {
        let cancel = cancel.child_token();
        let _cancel_on_drop = cancel.clone().drop_guard();
        let (done, done_receiver) = oneshot::channel();
        let job =
            TunnelJob { judge, stream, limits, tunnel_share, watch: watch.clone(), cancel, _done: done };
        match self.submit(Job::Tunnel(job)) {
            // The thread drops the sender at the end and never sends, so the result is always an error.
            Ok(()) => drop(done_receiver.await),
            Err(error) => watch.refuse(&error),
        }
        // Takes effect only if the thread ended before it recorded an end.
        watch.end(TunnelEnd::Broken);
    }

    /// Connects to the host and port of a URL, for a client of this process that speaks its own protocol. The judge is
    /// asked as about a tunnel, but the host may be an address. The stream is non-blocking and has no TLS.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// [`FetchError::Refused`] for the judge's refusal. Other variants say why there is no connection.
    pub async fn dial(&self, judge: Arc<dyn Judge>, url: Url) -> Result<TcpStream, FetchError> {
        let cancel = CancellationToken::new();
        let _cancel_on_drop = cancel.clone().drop_guard();
        let (stream_sender, stream_receiver) = oneshot::channel();
        self.submit(Job::Dial(DialJob { judge, url, cancel, result_sender: stream_sender }))?;
        stream_receiver.await.unwrap_or(Err(FetchError::Stopped))
    }

    /// Offers the job to each thread in turn, until one takes it.
    fn submit(&self, mut job: Job) -> Result<(), FetchError> {
        let first_index = self.next_index.fetch_add(1, Ordering::Relaxed);
        let mut error = FetchError::Stopped;
        for offset in 0..self.job_senders.len() {
            let index = first_index.wrapping_add(offset) % self.job_senders.len();
            match self.job_senders[index].try_send(job) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back)) => (job, error) = (back, FetchError::Busy),
                Err(TrySendError::Closed(back)) => job = back,
            }
        }
        Err(error)
    }
}

/// The settings that every thread gets, with the configuration's proxy parsed.
struct ThreadSettings {
    config: EgressConfig,
    proxy: Option<Proxy>,
}

/// A job for a thread.
enum Job {
    Request(RequestJob<Response>),
    Stream(RequestJob<StreamedResponse>),
    Tunnel(TunnelJob),
    Dial(DialJob),
}

/// A job that opens one connection and hands it to the caller.
struct DialJob {
    judge: Arc<dyn Judge>,
    url: Url,
    cancel: CancellationToken,
    result_sender: oneshot::Sender<Result<TcpStream, FetchError>>,
}

/// A job that serves one client's connection.
struct TunnelJob {
    judge: Arc<dyn Judge>,
    stream: TcpStream,
    limits: TunnelLimits,
    tunnel_share: TunnelShare,
    watch: TunnelWatch,
    cancel: CancellationToken,
    /// Dropped at the end of the job, which notifies the caller.
    _done: oneshot::Sender<()>,
}

/// A job that makes one request. `T` is the whole response, or its head with a stream.
struct RequestJob<T> {
    judge: Arc<dyn Judge>,
    request: Request,
    cancel: CancellationToken,
    /// Whether the thread has begun the request.
    has_begun: Arc<AtomicBool>,
    result_sender: oneshot::Sender<Result<T, FetchError>>,
}

/// Runs one thread, from its set-up to its end.
fn run_thread(
    settings: &ThreadSettings,
    tls: Arc<ClientConfig>,
    mut queue: mpsc::Receiver<Job>,
    ready: &blocking::SyncSender<Result<Posture, EgressError>>,
) {
    let start_result = match set_up(settings, tls) {
        Ok((runtime, client, proven)) => {
            if ready.send(Ok(proven.posture().clone())).is_ok() {
                runtime.block_on(serve(&client, &proven, &mut queue));
            }
            Ok(())
        }
        Err(error) => ready.send(Err(error)),
    };
    // `Egress::start` no longer waits for the result, so a failed send is ignored.
    drop(start_result);
}

/// Builds everything that needs a file, a thread or a new descriptor, and then confines the thread.
fn set_up(
    ThreadSettings { config, proxy }: &ThreadSettings,
    tls: Arc<ClientConfig>,
) -> Result<(Runtime, FetchClient, ProvenThread), EgressError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| EgressError::Thread { source })?;
    let resolver = Resolver::build(&config.names)?;
    let client = FetchClient {
        resolver,
        tls,
        ports: config.ports.clone(),
        proxy: proxy.clone(),
        pool: ConnectionPool::default(),
    };
    let rules = ThreadConfinement {
        landlock: config.landlock,
        seccomp: config.seccomp,
        mounts: Vec::new(),
        network: Some(NetworkRules { ports: ports(config, proxy.as_ref()) }),
        canary: config.canary.clone(),
    };
    let proven = confine_current_thread(&rules).map_err(|source| EgressError::Confine { source })?;
    Ok((runtime, client, proven))
}

/// Returns the ports that a thread may connect to.
fn ports(config: &EgressConfig, proxy: Option<&Proxy>) -> BTreeSet<u16> {
    let names = config.names.servers.iter().map(std::net::SocketAddr::port);
    match proxy {
        None => config.ports.iter().copied().chain(names).collect(),
        Some(proxy) => names.filter(|_| proxy.has_name()).chain([proxy.port]).collect(),
    }
}

/// Serves jobs until the queue is closed, or the thread cannot prove its confinement again.
async fn serve(client: &FetchClient, proven: &ProvenThread, queue: &mut mpsc::Receiver<Job>) {
    let mut requests = FuturesUnordered::new();
    let mut streams = FuturesUnordered::new();
    let (mut tunnels, mut refusals) = (FuturesUnordered::new(), FuturesUnordered::new());
    loop {
        tokio::select! {
            job = queue.recv(), if requests.len() < MAX_RUNNING_REQUESTS => {
                let Some(job) = job else { return };
                if let Err(source) = proven.reprove() {
                    // Returning drops the running jobs, which closes their connections.
                    job.refuse(FetchError::NotConfined { source });
                    return;
                }
                match job {
                    Job::Request(job) => requests.push(run(client, job).boxed_local()),
                    Job::Dial(job) => requests.push(dial(client, job).boxed_local()),
                    Job::Tunnel(job) => {
                        let permit = job.tunnel_share.take().filter(|_| tunnels.len() < MAX_TUNNELS);
                        match permit {
                            Some(permit) => tunnels.push(serve_tunnel(client, job, permit)),
                            None if refusals.len() < MAX_REFUSALS => refusals.push(refuse_tunnel(job)),
                            None => job.watch.refuse(&FetchError::Busy),
                        }
                    }
                    Job::Stream(job) if streams.len() < MAX_STREAMS => streams.push(stream(client, job)),
                    // Refuse streams and tunnels instead of queueing them: running ones can last long, and
                    // requests would be stuck behind them.
                    Job::Stream(_) => job.refuse(FetchError::Busy),
                }
            }
            Some(()) = requests.next(), if !requests.is_empty() => {}
            Some(()) = streams.next(), if !streams.is_empty() => {}
            Some(()) = tunnels.next(), if !tunnels.is_empty() => {}
            Some(()) = refusals.next(), if !refusals.is_empty() => {}
            () = client.pool.expire() => {}
        }
    }
}

impl Job {
    fn refuse(self, error: FetchError) {
        // The caller is gone if the send fails, so the error is ignored.
        match self {
            Self::Request(job) => drop(job.result_sender.send(Err(error))),
            Self::Stream(job) => drop(job.result_sender.send(Err(error))),
            Self::Tunnel(job) => job.watch.refuse(&error),
            Self::Dial(job) => drop(job.result_sender.send(Err(error))),
        }
    }
}

/// Serves one tunnel. A panic ends only this tunnel.
async fn serve_tunnel(client: &FetchClient, job: TunnelJob, permit: OwnedSemaphorePermit) {
    let TunnelJob { judge, stream, limits, tunnel_share: _, watch, cancel, _done } = job;
    // Dropped before `_done`, so the permit is free when the caller learns of the end.
    let _permit = permit;
    let carried = tunnel::relay(client, &*judge, stream, &limits, &watch);
    watch.end(run_until_cancelled(&cancel, carried, TunnelEnd::Cancelled, TunnelEnd::Broken).await);
}

/// Responds `busy` to a client that gets no tunnel.
async fn refuse_tunnel(job: TunnelJob) {
    let TunnelJob { stream, limits, watch, cancel, _done, .. } = job;
    let answered = tunnel::refuse_busy(stream, &limits, &watch);
    watch.end(run_until_cancelled(&cancel, answered, TunnelEnd::Cancelled, TunnelEnd::Broken).await);
}

/// Runs one job until it completes or is cancelled. A panic ends only this job.
async fn run_until_cancelled<R>(
    cancel: &CancellationToken,
    future: impl Future<Output = R>,
    cancelled: R,
    panicked: R,
) -> R {
    tokio::select! {
        // `biased`: a cancelled job drops even a result that is ready, because the caller is gone.
        biased;
        () = cancel.cancelled() => cancelled,
        result = AssertUnwindSafe(future).catch_unwind() => result.unwrap_or(panicked),
    }
}

/// Makes one connection and hands it to the caller.
async fn dial(client: &FetchClient, job: DialJob) {
    let connected = dial_request::connect(client, &*job.judge, &job.url);
    let cancelled = Err(FetchError::Cancelled);
    let result = run_until_cancelled(&job.cancel, connected, cancelled, Err(FetchError::Stopped)).await;
    // If the caller is gone, the send fails and the connection is closed.
    let _ignored = job.result_sender.send(result);
}

/// Makes one request and collects its body.
async fn run(client: &FetchClient, job: RequestJob<Response>) {
    job.has_begun.store(true, Ordering::SeqCst);
    let fetched = client.fetch(&*job.judge, job.request);
    let cancelled = Err(FetchError::Cancelled);
    let result = run_until_cancelled(&job.cancel, fetched, cancelled, Err(FetchError::Stopped)).await;
    // The caller is gone if the send fails, so the error is ignored.
    let _ignored = job.result_sender.send(result);
}

/// Makes one request and streams its body.
async fn stream(client: &FetchClient, job: RequestJob<StreamedResponse>) {
    job.has_begun.store(true, Ordering::SeqCst);
    let RequestJob { judge, request, cancel, result_sender, .. } = job;
    let serving = stream::serve(client, &*judge, request, cancel.clone(), result_sender);
    // The dropped channels tell the caller of the cancellation, or of a panic.
    run_until_cancelled(&cancel, serving, (), ()).await;
}

/// The maximum number of jobs that are queued for a thread. Further jobs are refused: callers have limits of
/// their own, and an unbounded queue would hold unbounded bodies.
const MAX_QUEUED_REQUESTS: usize = 128;

/// The maximum number of requests with collected bodies and of dials that a thread runs concurrently. Each
/// request may hold a body of the maximum size.
const MAX_RUNNING_REQUESTS: usize = 64;

/// The maximum number of responses that a thread streams concurrently. Each needs a connection and a few
/// pieces of 64 KiB, however long its body is.
const MAX_STREAMS: usize = 128;

/// The maximum number of concurrent tunnels of a thread. Each has two descriptors and 32 KiB of buffers.
const MAX_TUNNELS: usize = 1024;

/// The maximum number of concurrent responses with `busy`. Further clients are disconnected unanswered.
const MAX_REFUSALS: usize = 64;

#[cfg(test)]
impl Egress {
    /// Returns a client whose threads have ended.
    pub(crate) fn ended(mut self) -> Self {
        let (ended, _dropped) = mpsc::channel(1);
        self.job_senders = vec![ended];
        self
    }
}
