//! Submits checkpoints of the audit log to witnesses, on a separate thread, so that neither a call nor the
//! log waits for the network.

use std::{
    io,
    sync::{Arc, mpsc as blocking},
    thread,
    time::Duration,
};

use futures_util::future::join_all;
use parking_lot::Mutex;
use portcullis_audit::{
    AuditLog, CHECKPOINT_INTERVAL, SignedCheckpoint, WitnessClient, WitnessError, WitnessKey, WitnessOutcome,
};
use portcullis_egress::{
    CancellationToken, ConfiguredOrigins, FetchError, HeaderMap, Method, Request, RequestLimits, Url,
};
use portcullis_policy::WitnessDestination;
use portcullis_types::{ToolError, error_chain};
use thiserror::Error;
use tokio::{sync::watch, time};

use crate::{
    error::BootstrapError,
    web::{HttpClientConfig, HttpClientHandle},
};

/// How long the process waits for the last checkpoint at exit: 5 s.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of requests for one checkpoint. The limit stops a witness that names
/// a new size in every answer.
const MAX_ROUNDS: usize = 8;

/// The maximum size of a witness's response, in bytes: 64 KiB, which has room for hundreds of signatures.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// A witness that the policy names.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    url: Url,
    key: WitnessKey,
}

impl Witness {
    pub(crate) fn new(destination: &WitnessDestination) -> Result<Self, BootstrapError> {
        let mut url = destination.url.clone();
        let key = WitnessKey::parse(&destination.key)
            .map_err(|source| BootstrapError::Witness { url: destination.url.clone(), source })?;
        // Cannot fail: an `http` URL always has path segments.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("add-checkpoint");
        }
        Ok(Self { url, key })
    }
}

/// The thread that submits checkpoints to witnesses. Dropping it waits a little for the last one.
pub(crate) struct WitnessThread {
    newest: Option<watch::Sender<Option<SignedCheckpoint>>>,
    /// In a mutex only because a sink is shared between threads.
    ended: Mutex<blocking::Receiver<()>>,
}

impl WitnessThread {
    /// Starts the thread.
    pub(crate) fn start(log: &AuditLog, witnesses: &[Witness], config: HttpClientConfig) -> io::Result<Self> {
        let (newest, receiver) = watch::channel(None);
        let (ending, ended) = blocking::channel();
        let clients: Vec<_> = witnesses
            .iter()
            .map(|witness| (witness.url.clone(), WitnessClient::new(log, witness.key.clone())))
            .collect();
        let limits = RequestLimits {
            max_redirects: 0,
            wire_bytes: MAX_RESPONSE_BYTES,
            response_bytes: MAX_RESPONSE_BYTES,
            ..RequestLimits::default()
        };
        let judge = Arc::new(ConfiguredOrigins::new(witnesses.iter().map(|witness| &witness.url), limits));
        let http_client =
            HttpClientHandle::new(HttpClientConfig { ports: judge.ports(), secrets: Vec::new(), ..config });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("witnesses".to_owned()).spawn(move || {
            let http = WitnessHttp { http_client, judge };
            runtime.block_on(join_all(clients.into_iter().map(|(url, client)| {
                let http = &http;
                let receiver = receiver.clone();
                async move { serve(http, url, client, receiver).await }
            })));
            // The send fails if the process did not wait for this thread.
            let _ = ending.send(());
        })?;
        Ok(Self { newest: Some(newest), ended: Mutex::new(ended) })
    }

    /// Passes a checkpoint to the thread. It replaces one that the thread has not started to submit.
    pub(crate) fn submit(&self, signed: &SignedCheckpoint) {
        if let Some(newest) = &self.newest {
            newest.send_replace(Some(signed.clone()));
        }
    }
}

impl Drop for WitnessThread {
    fn drop(&mut self) {
        // Without its sender, `serve` returns after the last checkpoint.
        drop(self.newest.take());
        let ended = self.ended.get_mut();
        if ended.recv_timeout(EXIT_TIMEOUT) == Err(blocking::RecvTimeoutError::Timeout) {
            tracing::warn!("a witness has not answered yet; the next process takes the checkpoint to it");
        }
    }
}

/// The connection to all witnesses.
struct WitnessHttp {
    http_client: HttpClientHandle,
    judge: Arc<ConfiguredOrigins>,
}

/// Submits each new checkpoint to one witness, until the sender is dropped.
async fn serve(
    http: &WitnessHttp,
    url: Url,
    mut client: WitnessClient,
    mut receiver: watch::Receiver<Option<SignedCheckpoint>>,
) {
    let mut last_error = None;
    let mut must_retry = false;
    loop {
        let is_open = tokio::select! {
            changed = receiver.changed() => changed.is_ok(),
            () = time::sleep(CHECKPOINT_INTERVAL), if must_retry => true,
        };
        if !is_open {
            return;
        }
        let Some(newest) = receiver.borrow_and_update().clone() else { continue };
        let error = submit(http, &url, &mut client, &newest).await.err().map(|error| error_chain(&error));
        must_retry = error.is_some();
        let witness = client.name();
        match Notice::new(last_error.as_deref(), error.as_deref()) {
            Notice::NewError(error) => {
                tracing::error!(witness, error, "a checkpoint of the audit log is not witnessed");
            }
            Notice::SameError(error) => {
                tracing::debug!(witness, error, "a checkpoint of the audit log is not witnessed");
            }
            Notice::Recovered => tracing::info!(witness, "the audit log is witnessed again"),
            Notice::Nothing => {}
        }
        last_error = error;
    }
}

/// The log message after an attempt to submit a checkpoint.
#[derive(Debug, PartialEq, Eq)]
enum Notice<'e> {
    /// The attempt failed, unlike the previous one or with another error.
    NewError(&'e str),
    /// The attempt failed like the previous one. An error message for each attempt would flood the journal.
    SameError(&'e str),
    /// The attempt succeeded after a failure.
    Recovered,
    /// The attempt succeeded like the previous one.
    Nothing,
}

impl<'e> Notice<'e> {
    fn new(last_error: Option<&str>, error: Option<&'e str>) -> Self {
        match (last_error, error) {
            (Some(last), Some(error)) if last == error => Self::SameError(error),
            (_, Some(error)) => Self::NewError(error),
            (Some(_), None) => Self::Recovered,
            (None, None) => Self::Nothing,
        }
    }
}

/// The reason why a checkpoint is not witnessed.
#[derive(Debug, Error)]
enum SubmitError {
    #[error("{0}")]
    NoClient(ToolError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Witness(#[from] WitnessError),
    #[error("the witness never reaches the newest checkpoint")]
    Behind,
}

/// Submits a checkpoint to a witness.
async fn submit(
    http: &WitnessHttp,
    url: &Url,
    client: &mut WitnessClient,
    newest: &SignedCheckpoint,
) -> Result<(), SubmitError> {
    for _ in 0..MAX_ROUNDS {
        let Some(request) = client.request(newest)? else { return Ok(()) };
        let egress = http.http_client.egress().await.map_err(SubmitError::NoClient)?;
        let http_request = Request {
            method: Method::POST,
            url: url.clone(),
            headers: HeaderMap::new(),
            body: request.body.clone().into(),
        };
        let sent = egress.send(Arc::clone(&http.judge) as _, http_request, CancellationToken::new());
        let response = sent.await?;
        let answer = client.read_answer(&request, response.status.as_u16(), &response.body);
        if let WitnessOutcome::Cosigned(time) = answer? {
            let rows = request.checkpoint.checkpoint.size;
            tracing::debug!(witness = client.name(), rows, %time, "a checkpoint of the audit log is witnessed");
        }
    }
    Err(SubmitError::Behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_logged_as_an_error_once_until_it_changes_or_ends() {
        let attempts =
            [None, Some("gone"), Some("gone"), Some("slow"), Some("gone"), None, Some("gone"), None];
        let mut last = None;
        let notices = attempts.map(|error| Notice::new(std::mem::replace(&mut last, error), error));
        let expected = [
            Notice::Nothing,
            Notice::NewError("gone"),
            Notice::SameError("gone"),
            Notice::NewError("slow"),
            Notice::NewError("gone"),
            Notice::Recovered,
            Notice::NewError("gone"),
            Notice::Recovered,
        ];
        assert_eq!(notices, expected);
    }
}
