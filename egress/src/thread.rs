//! The threads: started, confined, and given requests.
//!
//! A thread has a runtime of its own, which exists before the thread is confined. It proves its confinement
//! before each request. Requests on it take turns; none of them starts a task or a thread.

use std::{
    collections::BTreeSet,
    fmt, io,
    num::NonZeroUsize,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
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
};
use tokio_util::sync::CancellationToken;

use crate::{
    EgressError, FetchError, Judge, NameSettings, Request, Response, TrustedRoots, fetch::Client,
    resolve::Resolver,
};

/// The settings of the threads. There is no default: each of them grants power.
#[derive(Clone, Debug)]
pub struct EgressSettings {
    /// The target of the threads' attempts, whose refusal proves the confinement.
    pub canary: Canary,
    /// Whether the threads must have Landlock, which holds the ports.
    pub landlock: Requirement,
    /// Whether the threads must have the system-call filter, which refuses other protocols, files and programs.
    pub seccomp: Requirement,
    /// The ports that requests may go to. The name servers' ports are opened besides, for names alone.
    pub ports: BTreeSet<u16>,
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
    pub fn start(settings: EgressSettings) -> Result<Self, EgressError> {
        let tls = settings.roots.client_config()?;
        let settings = Arc::new(settings);
        let (mut threads, mut posture) = (Vec::new(), None);
        for number in 0..settings.threads.get() {
            let (jobs, queue) = mpsc::channel(QUEUE);
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

    /// Makes a request and follows its redirects, as far as the judge lets them.
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
        let (answer, answered) = oneshot::channel();
        self.submit(Job { judge, request, cancel, answer })?;
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

/// One request on its way to a thread.
struct Job {
    judge: Arc<dyn Judge>,
    request: Request,
    cancel: CancellationToken,
    answer: oneshot::Sender<Result<Response, FetchError>>,
}

/// The life of a thread.
fn work(
    settings: &EgressSettings,
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
    settings: &EgressSettings,
    tls: Arc<ClientConfig>,
) -> Result<(Runtime, Client, ProvenThread), EgressError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| EgressError::Thread { source })?;
    let resolver = Resolver::build(&settings.names)?;
    let client = Client { resolver, tls, ports: settings.ports.clone() };
    let name_ports = settings.names.servers.iter().map(std::net::SocketAddr::port);
    let rules = ThreadConfinement {
        landlock: settings.landlock,
        seccomp: settings.seccomp,
        mounts: Vec::new(),
        network: Some(NetworkRules { ports: settings.ports.iter().copied().chain(name_ports).collect() }),
        canary: settings.canary.clone(),
    };
    let proven = confine_current_thread(&rules).map_err(|source| EgressError::Confine { source })?;
    Ok((runtime, client, proven))
}

/// Serves requests until the queue is closed, or the confinement is in doubt.
async fn serve(client: &Client, proven: &ProvenThread, queue: &mut mpsc::Receiver<Job>) {
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            job = queue.recv(), if running.len() < IN_FLIGHT => {
                let Some(job) = job else { return };
                if let Err(source) = proven.reprove() {
                    // Dropping the others closes their connections.
                    let _gone = job.answer.send(Err(FetchError::NotConfined { source }));
                    return;
                }
                running.push(run(client, job));
            }
            Some(()) = running.next(), if !running.is_empty() => {}
        }
    }
}

/// Makes one request. A panic is the end of that request, and not of the thread's others.
async fn run(client: &Client, job: Job) {
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
const QUEUE: usize = 128;

/// Requests that a thread works on at a time. Each may hold a body of the limit's size.
const IN_FLIGHT: usize = 64;
