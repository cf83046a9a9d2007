//! The host's HTTP client and the secrets. The client starts, and a secret is read, when a request first
//! needs it, so a process without requests pays nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use portcullis_confine::{Canary, Requirement};
use portcullis_egress::{
    Credential, Egress, EgressConfig, EgressError, LazyEgress, NameSettings, SystemRoots, TrustedRoots,
    read_ca,
};
use portcullis_policy::{Grant, SecretName};
use portcullis_types::{ToolError, chain};

use super::{SecretError, SecretPlace};

/// The client's threads. One is enough for many requests, which mostly wait.
const THREADS: NonZeroUsize = NonZeroUsize::MIN;

/// The settings to start the client with.
#[derive(Debug, Clone)]
pub(crate) struct HttpClientConfig {
    /// The state folder, which has the canary for the proof of confinement.
    pub(crate) state: PathBuf,
    pub(crate) landlock: Requirement,
    pub(crate) seccomp: Requirement,
    /// The ports of all rules of the policy.
    pub(crate) ports: BTreeSet<u16>,
    /// The file with further certificates.
    pub(crate) ca: Option<PathBuf>,
    /// The secrets of the policy.
    pub(crate) secrets: Vec<SecretPlace>,
}

/// The client, and the settings to start it with.
#[derive(Debug)]
pub(crate) struct HttpClientHandle {
    config: HttpClientConfig,
    client: LazyEgress,
    /// The secrets that were read. They are kept until the process ends.
    read: Mutex<BTreeMap<SecretName, Credential>>,
}

/// The reason why the client could not be started.
#[derive(Debug, thiserror::Error)]
enum ClientStartError {
    #[error("read the certificates in {}", .path.display())]
    Ca { path: PathBuf, source: io::Error },
    #[error("prepare the proof of confinement")]
    Canary(#[source] portcullis_confine::ConfineError),
    #[error(transparent)]
    Egress(#[from] EgressError),
}

impl HttpClientHandle {
    pub(crate) fn new(config: HttpClientConfig) -> Self {
        Self { config, client: LazyEgress::default(), read: Mutex::default() }
    }

    /// The secrets for the requests of one grant: those of its tool, to attach, and all others that were
    /// read, which no response may repeat.
    ///
    /// # Errors
    /// `unavailable` with the code `secret_unavailable` if a secret of the tool cannot be read. The next
    /// request tries again.
    pub(super) async fn credentials(&self, grant: &Grant) -> Result<Vec<Credential>, ToolError> {
        for secret in &*grant.secrets {
            let is_read = self.read().contains_key(&secret.name);
            let place = self.config.secrets.iter().find(|place| *place.name() == secret.name);
            let Some(place) = place.filter(|_| !is_read).cloned() else { continue };
            let read = tokio::task::spawn_blocking(move || place.read()).await;
            match read {
                Ok(Ok(credential)) => drop(self.read().insert(secret.name.clone(), credential)),
                Ok(Err(error)) => return Err(secret_unreadable(&secret.name, &error)),
                Err(_panicked) => {
                    return Err(ToolError::internal("the thread that reads a secret has panicked"));
                }
            }
        }
        Ok(self.read().values().cloned().collect())
    }

    fn read(&self) -> MutexGuard<'_, BTreeMap<SecretName, Credential>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client. The first request starts it ([`LazyEgress::get`]).
    ///
    /// # Errors
    /// `unavailable` if it cannot be started. No request is ever made outside the confined threads.
    pub(crate) async fn client(&self) -> Result<Arc<Egress>, ToolError> {
        let config = self.config.clone();
        self.client.get(move || start(&config)).await.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "the HTTP client cannot be started");
            ToolError::unavailable("the network cannot be reached from here")
                .with_operator_detail(chain(&error))
        })
    }
}

/// Without its secret the request is not made, since the server would answer an anonymous client.
fn secret_unreadable(name: &SecretName, error: &SecretError) -> ToolError {
    tracing::warn!(secret = %name, error = error as &dyn std::error::Error, "a secret cannot be read");
    ToolError::unavailable(format!(
        "the secret `{name}` of this tool cannot be read, so nothing was requested"
    ))
    .with_code("secret_unavailable")
    .with_operator_detail(chain(error))
}

fn start(config: &HttpClientConfig) -> Result<Egress, ClientStartError> {
    let ca = config
        .ca
        .as_ref()
        .map(|path| read_ca(path).map_err(|source| ClientStartError::Ca { path: path.clone(), source }));
    let ca = ca.transpose()?;
    let ca: Vec<&[u8]> = ca.as_deref().into_iter().collect();
    Ok(Egress::start(EgressConfig {
        canary: Canary::create(&config.state).map_err(ClientStartError::Canary)?,
        landlock: config.landlock,
        seccomp: config.seccomp,
        ports: config.ports.clone(),
        names: NameSettings::read_system()?,
        roots: TrustedRoots::read(SystemRoots::Trust, &ca)?,
        threads: THREADS,
    })?)
}
