//! Starts the host's HTTP client, and reads each secret, when a request first needs it, so that a process which
//! requests nothing pays nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use portcullis_confine::{Canary, Requirement};
use portcullis_egress::{
    Credential, Egress, EgressError, EgressSettings, LazyEgress, NameSettings, SystemRoots, TrustedRoots,
    Url, read_ca,
};
use portcullis_policy::{Grant, SecretName};
use portcullis_types::{ToolError, chain};

use super::{SecretError, SecretPlace};

/// The client's threads. One does for many requests, which wait more than they compute.
const THREADS: NonZeroUsize = NonZeroUsize::MIN;

/// What the client is started with.
#[derive(Debug, Clone)]
pub(crate) struct GateTerms {
    /// The state folder, whose canary proves the confinement.
    pub(crate) state: PathBuf,
    pub(crate) landlock: Requirement,
    pub(crate) seccomp: Requirement,
    /// The ports of all rules of the policy.
    pub(crate) ports: BTreeSet<u16>,
    /// The proxy of all requests.
    pub(crate) proxy: Option<Url>,
    /// The file with further certificates.
    pub(crate) ca: Option<PathBuf>,
    /// The secrets of the policy.
    pub(crate) secrets: Vec<SecretPlace>,
}

/// The client, or the terms to start it.
#[derive(Debug)]
pub(crate) struct EgressGate {
    terms: GateTerms,
    client: LazyEgress,
    /// The secrets that were read, until the process ends.
    read: Mutex<BTreeMap<SecretName, Credential>>,
}

/// Why the client could not be started.
#[derive(Debug, thiserror::Error)]
enum GateError {
    #[error("read the certificates in {}", .path.display())]
    Ca { path: PathBuf, source: io::Error },
    #[error("prepare the proof of confinement")]
    Canary(#[source] portcullis_confine::ConfineError),
    #[error(transparent)]
    Egress(#[from] EgressError),
}

impl EgressGate {
    pub(crate) fn new(terms: GateTerms) -> Self {
        Self { terms, client: LazyEgress::default(), read: Mutex::default() }
    }

    /// The secrets for the requests of one grant: those of its tool to attach, and those of all other tools that
    /// were read, which no response may repeat.
    ///
    /// # Errors
    /// `unavailable` with the code `secret_unavailable`: a secret of the tool cannot be read. The next request tries
    /// again.
    pub(super) async fn credentials(&self, grant: &Grant) -> Result<Vec<Credential>, ToolError> {
        for secret in &*grant.secrets {
            let is_read = self.read().contains_key(&secret.name);
            let place = self.terms.secrets.iter().find(|place| *place.name() == secret.name);
            let Some(place) = place.filter(|_| !is_read).cloned() else { continue };
            let read = tokio::task::spawn_blocking(move || place.read()).await;
            match read {
                Ok(Ok(credential)) => drop(self.read().insert(secret.name.clone(), credential)),
                Ok(Err(error)) => return Err(unread(&secret.name, &error)),
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

    /// The client, which starts with the first request ([`LazyEgress::get`]).
    ///
    /// # Errors
    /// `unavailable`: no request is ever made outside of the confined threads.
    pub(crate) async fn client(&self) -> Result<Arc<Egress>, ToolError> {
        let terms = self.terms.clone();
        self.client.get(move || start(&terms)).await.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "the HTTP client cannot be started");
            ToolError::unavailable("the network cannot be reached from here")
                .with_operator_detail(chain(&error))
        })
    }
}

/// Without its secret the request is not made: the server would answer an anonymous client.
fn unread(name: &SecretName, error: &SecretError) -> ToolError {
    tracing::warn!(secret = %name, error = error as &dyn std::error::Error, "a secret cannot be read");
    ToolError::unavailable(format!(
        "the secret `{name}` of this tool cannot be read, so nothing was requested"
    ))
    .with_code("secret_unavailable")
    .with_operator_detail(chain(error))
}

fn start(terms: &GateTerms) -> Result<Egress, GateError> {
    let ca = terms
        .ca
        .as_ref()
        .map(|path| read_ca(path).map_err(|source| GateError::Ca { path: path.clone(), source }));
    let ca = ca.transpose()?;
    let ca: Vec<&[u8]> = ca.as_deref().into_iter().collect();
    let (names, missing) = NameSettings::read_available()?;
    if let Some(reason) = &missing {
        let error = reason as &dyn std::error::Error;
        tracing::warn!(
            error,
            "no name server is asked: only addresses and names of /etc/hosts can be reached"
        );
    }
    Ok(Egress::start(EgressSettings {
        canary: Canary::create(&terms.state).map_err(GateError::Canary)?,
        landlock: terms.landlock,
        seccomp: terms.seccomp,
        ports: terms.ports.clone(),
        proxy: terms.proxy.clone(),
        names,
        roots: TrustedRoots::read(SystemRoots::Trust, &ca)?,
        threads: THREADS,
    })?)
}
