//! The host's HTTP client and the policy's secrets. The first request starts the client and reads the
//! secrets, so a process without requests starts no threads for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
};

use portcullis_confine::{CanaryFile, Requirement};
use portcullis_egress::{
    Credential, DnsConfig, Egress, EgressConfig, EgressError, LazyEgress, SystemRoots, TrustedRoots, Url,
    read_ca_file,
};
use portcullis_policy::{Grant, SecretName};
use portcullis_types::{ToolError, ToolErrorCode, error_chain};
use tokio::sync::Mutex as AsyncMutex;

use super::{
    SecretError, SecretLocation,
    known_secrets::{KnownSecret, KnownSecrets},
};

/// The number of the client's threads. One thread is enough for many requests, because they mostly wait.
const THREADS: NonZeroUsize = NonZeroUsize::MIN;

/// The settings for starting the client.
#[derive(Debug, Clone)]
pub(crate) struct HttpClientConfig {
    /// The state folder. It holds the canary that proves the confinement.
    pub(crate) state: PathBuf,
    pub(crate) landlock: Requirement,
    pub(crate) seccomp: Requirement,
    /// The ports of all host rules in the policy.
    pub(crate) ports: BTreeSet<u16>,
    /// The proxy for all requests.
    pub(crate) proxy: Option<Url>,
    /// The file with additional trusted certificates.
    pub(crate) ca: Option<PathBuf>,
    /// The secrets of the policy.
    pub(crate) secrets: Vec<SecretLocation>,
}

/// The client, and the settings for starting it.
#[derive(Debug)]
pub(crate) struct HttpClientHandle {
    config: HttpClientConfig,
    client: LazyEgress,
    /// The secrets by name, each read once. The thread that reads a secret holds the secret's lock, so a file
    /// system that hangs blocks only one thread per secret.
    secrets: BTreeMap<SecretName, Arc<AsyncMutex<Option<Credential>>>>,
    /// All secrets that were read for any tool. They are kept until the process exits.
    known_secrets: Arc<KnownSecrets>,
}

/// Why the client cannot be started.
#[derive(Debug, thiserror::Error)]
enum ClientStartError {
    #[error("cannot read the certificates in {}", .path.display())]
    Ca { path: PathBuf, source: io::Error },
    #[error("cannot prepare the proof of confinement")]
    CanaryFile(#[source] portcullis_confine::ConfineError),
    #[error(transparent)]
    Egress(#[from] EgressError),
}

impl HttpClientHandle {
    pub(crate) fn new(config: HttpClientConfig) -> Self {
        let secrets =
            config.secrets.iter().map(|location| (location.name().clone(), Arc::default())).collect();
        Self { config, client: LazyEgress::default(), secrets, known_secrets: Arc::default() }
    }

    /// All secrets that were read so far, for any tool. They are redacted from every response.
    pub(crate) fn known_secrets(&self) -> &Arc<KnownSecrets> {
        &self.known_secrets
    }

    /// Returns the secrets that the requests of a grant may carry.
    ///
    /// # Cancellation
    /// If the future is dropped, a read in progress continues on its thread, and the next
    /// request waits for it.
    ///
    /// # Errors
    /// `unavailable` with the code `secret_unavailable` if a secret of the tool cannot be read. The next
    /// request tries again.
    pub(super) async fn credentials(&self, grant: &Grant) -> Result<Vec<Credential>, ToolError> {
        let mut credentials = Vec::new();
        for secret in &*grant.secrets {
            let location = self.config.secrets.iter().find(|location| *location.name() == secret.name);
            let (Some(location), Some(cached)) = (location.cloned(), self.secrets.get(&secret.name)) else {
                continue;
            };
            let mut cached = Arc::clone(cached).lock_owned().await;
            if let Some(credential) = &*cached {
                credentials.push(credential.clone());
                continue;
            }
            let known_secrets = Arc::clone(&self.known_secrets);
            let read_task = tokio::task::spawn_blocking(move || {
                let credential = location.read()?;
                // Remember the value before it can be sent, so that it is redacted from every response.
                known_secrets
                    .add(KnownSecret { credential: credential.clone(), hosts: location.hosts().clone() });
                Ok(cached.insert(credential).clone())
            });
            match read_task.await {
                Ok(Ok(credential)) => credentials.push(credential),
                Ok(Err(error)) => return Err(secret_unreadable(&secret.name, &error)),
                Err(_panicked) => {
                    return Err(ToolError::internal("the thread that reads a secret has panicked"));
                }
            }
        }
        Ok(credentials)
    }

    /// Returns the client. The first request starts it (see [`LazyEgress::get`]).
    ///
    /// # Errors
    /// `unavailable` if the client cannot be started. There is no fallback: no request is made outside
    /// the confined threads.
    pub(crate) async fn egress(&self) -> Result<Arc<Egress>, ToolError> {
        let config = self.config.clone();
        self.client.get(move || start(&config)).await.map_err(|error| unavailable(&error))
    }

    /// Returns the TLS settings for a connection with another protocol than HTTP.
    ///
    /// # Errors
    /// `unavailable` if the certificates cannot be read.
    pub(super) async fn tls_config(&self) -> Result<Arc<rustls::ClientConfig>, ToolError> {
        let config = self.config.clone();
        let read = tokio::task::spawn_blocking(move || Ok(roots(&config)?.tls_config()?));
        match read.await {
            Ok(read) => read.map_err(|error: ClientStartError| unavailable(&error)),
            Err(_panicked) => Err(ToolError::internal("the thread that reads certificates has panicked")),
        }
    }
}

fn unavailable(error: &ClientStartError) -> ToolError {
    tracing::warn!(error = error as &dyn std::error::Error, "the HTTP client cannot be started");
    ToolError::unavailable("the network cannot be reached from here").with_operator_detail(error_chain(error))
}

/// Returns the error of a secret that cannot be read. The request is not sent without its secret, because the
/// server would treat the client as anonymous.
fn secret_unreadable(name: &SecretName, error: &SecretError) -> ToolError {
    tracing::warn!(secret = %name, error = error as &dyn std::error::Error, "a secret cannot be read");
    ToolError::unavailable(format!(
        "the secret `{name}` of this tool cannot be read, so nothing was requested"
    ))
    .with_code(ToolErrorCode::SecretUnavailable)
    .with_hint(format!(
        "an operator gives it a value where `from` under `[secrets.{name}]` in the policy says; `portcullis doctor` names the problem"
    ))
    .with_operator_detail(error_chain(error))
}

/// Returns the trusted root certificates.
fn roots(config: &HttpClientConfig) -> Result<TrustedRoots, ClientStartError> {
    let ca = config
        .ca
        .as_ref()
        .map(|path| read_ca_file(path).map_err(|source| ClientStartError::Ca { path: path.clone(), source }));
    let ca = ca.transpose()?;
    let ca: Vec<&[u8]> = ca.as_deref().into_iter().collect();
    Ok(TrustedRoots::read(SystemRoots::Trust, &ca)?)
}

fn start(config: &HttpClientConfig) -> Result<Egress, ClientStartError> {
    let (names, missing_reason) = DnsConfig::read_available()?;
    if let Some(reason) = &missing_reason {
        let error = reason as &dyn std::error::Error;
        tracing::warn!(
            error,
            "no name server is asked: only addresses and names of /etc/hosts can be reached"
        );
    }
    Ok(Egress::start(EgressConfig {
        canary: CanaryFile::create(&config.state).map_err(ClientStartError::CanaryFile)?,
        landlock: config.landlock,
        seccomp: config.seccomp,
        ports: config.ports.clone(),
        proxy: config.proxy.clone(),
        names,
        roots: roots(config)?,
        threads: THREADS,
    })?)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use portcullis_egress::{CancellationToken, Request};
    use portcullis_policy::{
        CallRequest, LoadOptions, PolicySource, RunContext, SecretName, ToolDescriptor,
        WorkspaceSecurityPolicy,
    };
    use portcullis_types::{SandboxTier, ToolErrorKind};

    use super::*;
    use crate::{
        audit::RowFields,
        web::{GrantJudge, RequestError, request_step::descriptor, send},
    };

    const POLICY: &str = "version = 1\n[profiles.Net]\nhosts = ['https://a.example']\n\
        [tools.web_fetch_request]\nprofile = 'Net'\n[secrets.s]\nfrom = 'file:/none'\n\
        hosts = ['https://a.example']\nheader = 'Authorization: Bearer {secret}'\ntools = ['web_fetch']\n";

    /// Creates a client under this policy with this state folder, and the grant of a request.
    fn client(state: &tempfile::TempDir) -> (HttpClientHandle, Grant) {
        let operator = PolicySource { name: "p", text: POLICY };
        let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
        let policy = WorkspaceSecurityPolicy::load(&options).expect("loads");
        let tool: ToolDescriptor = descriptor("web_fetch_request", Vec::new()).expect("the name is valid");
        let run = RunContext { agent: "a", run: "r", labels: Arc::default() };
        let grant =
            policy.authorize(&CallRequest { tool: &tool, subjects: &[], run: &run }).expect("granted");
        assert_eq!(grant.secrets.len(), 1);
        let location = |secret| SecretLocation::new(secret, None, &super::super::TakenVariables::default());
        let config = HttpClientConfig {
            state: state.path().to_owned(),
            landlock: Requirement::Waived,
            seccomp: Requirement::Waived,
            ports: BTreeSet::new(),
            ca: None,
            proxy: None,
            secrets: policy.secrets().map(location).collect(),
        };
        (HttpClientHandle::new(config), grant)
    }

    async fn ask(
        client: &HttpClientHandle,
        grant: &Grant,
        time: Duration,
        cancel: CancellationToken,
    ) -> ToolErrorKind {
        let judge = Arc::new(GrantJudge::new(grant.clone(), None, time));
        let get = Request::get("https://a.example/".parse().expect("a URL"));
        match send(client, &judge, get, cancel, &mut RowFields::default()).await {
            Err(RequestError::Failed(error)) => error.kind(),
            Err(RequestError::Denied(denial)) => panic!("{denial}"),
            Ok(response) => panic!("{response:?}"),
        }
    }

    /// Checks that both the deadline and a cancellation end a call while a step before its request hangs.
    async fn check_ends(client: &HttpClientHandle, grant: &Grant) {
        let short_limit = Duration::from_millis(50);
        assert_eq!(ask(client, grant, short_limit, CancellationToken::new()).await, ToolErrorKind::Timeout);
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let long_limit = Duration::from_secs(600);
        assert_eq!(ask(client, grant, long_limit, cancelled).await, ToolErrorKind::Cancelled);
    }

    #[tokio::test]
    async fn a_client_that_does_not_start_holds_no_call_beyond_its_time() {
        let state = tempfile::tempdir().expect("a folder");
        let (client, grant) = client(&state);
        let (_release, block_forever) = mpsc::channel::<()>();
        let mut hangs = Box::pin(client.client.get(move || {
            let _released = block_forever.recv();
            Err::<Egress, ClientStartError>(EgressError::NoRoots.into())
        }));
        assert!(futures_util::poll!(&mut hangs).is_pending());
        check_ends(&client, &grant).await;
    }

    #[tokio::test]
    async fn a_secret_that_is_not_read_holds_no_call_beyond_its_time() {
        let state = tempfile::tempdir().expect("a folder");
        let (client, grant) = client(&state);
        let started = client.client.get(|| {
            let state = tempfile::tempdir().expect("a folder");
            Ok::<_, ClientStartError>(Egress::start(EgressConfig {
                canary: CanaryFile::create(state.path()).map_err(ClientStartError::CanaryFile)?,
                landlock: Requirement::Waived,
                seccomp: Requirement::Waived,
                ports: BTreeSet::new(),
                proxy: None,
                names: DnsConfig::with_servers(Vec::new()),
                roots: TrustedRoots::empty(),
                threads: THREADS,
            })?)
        });
        started.await.expect("starts");
        let name: &SecretName = &grant.secrets[0].name;
        let _reading = client.secrets[name].lock().await;
        check_ends(&client, &grant).await;
    }
}
