//! The threads that make the sessions' connections, and the judge of each connection. The first session with a
//! network starts the threads.
//!
//! The sidecar's own threads make no connections. The forwarders hand each connection to the confined threads,
//! which can only connect.

use std::{
    io,
    net::IpAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use portcullis_confine::{CanaryFile, Requirement};
use portcullis_egress::{
    DnsConfig, Egress, EgressConfig, EgressError, Judge, LazyEgress, Method, Refusal, RequestLimits,
    SystemRoots, TrustedRoots, Url, certificate_bundle, read_ca_file,
};
use portcullis_policy::{Denial, ShellNetwork, UrlHost};
use tokio::sync::OnceCell;

use super::SidecarNetwork;

/// The HTTP client and the certificates of a session with a network.
#[derive(Debug, Clone)]
pub(super) struct SessionEgress {
    /// The client that makes the session's connections.
    pub(super) egress: Arc<Egress>,
    /// The certificates that the session's programs trust, in PEM form.
    pub(super) certificates: Arc<str>,
}

/// The HTTP client that all sessions share, and the settings for its start.
#[derive(Debug)]
pub(super) struct SharedSessionEgress {
    network: SidecarNetwork,
    canary: CanaryFile,
    egress: LazyEgress,
    certificates: OnceCell<Arc<str>>,
}

impl SharedSessionEgress {
    pub(super) fn new(network: SidecarNetwork, canary: CanaryFile) -> Self {
        Self { network, canary, egress: LazyEgress::default(), certificates: OnceCell::new() }
    }

    /// The client. The first call starts it ([`LazyEgress::get`]).
    ///
    /// # Errors
    /// [`TunnelStartError`]. Without the client there is no connection: none is
    /// made outside the confined threads.
    pub(super) async fn get(&self) -> Result<SessionEgress, TunnelStartError> {
        let client = async {
            let (network, canary) = (self.network.clone(), self.canary.clone());
            let egress = self.egress.get(move || start(&network, canary)).await?;
            let ca = self.network.ca.clone();
            let certificates = self.certificates.get_or_try_init(|| async {
                let read = move || -> Result<Arc<str>, TunnelStartError> {
                    let ca = extra_certificates(ca.as_deref())?;
                    Ok(certificate_bundle(
                        SystemRoots::Trust,
                        &ca.iter().map(Vec::as_slice).collect::<Vec<_>>(),
                    )?
                    .into())
                };
                tokio::task::spawn_blocking(read).await.map_err(|_panicked| TunnelStartError::Panicked)?
            });
            Ok(SessionEgress { egress, certificates: Arc::clone(certificates.await?) })
        };
        client.await.inspect_err(|error| {
            tracing::warn!(reason = portcullis_types::error_chain(error), "the sessions have no network");
        })
    }
}

/// The reason why the client of the sessions cannot be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelStartError {
    #[error("the certificates in {} cannot be read", .path.display())]
    Ca { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("the thread that reads the certificates has panicked")]
    Panicked,
}

fn start(network: &SidecarNetwork, canary: CanaryFile) -> Result<Egress, TunnelStartError> {
    let ca = extra_certificates(network.ca.as_deref())?;
    let (names, missing) = DnsConfig::read_available()?;
    if let Some(reason) = &missing {
        let error = reason as &dyn std::error::Error;
        tracing::warn!(error, "no name server is asked: only names of /etc/hosts can be reached");
    }
    let requirement = |is_required| if is_required { Requirement::Required } else { Requirement::Waived };
    Ok(Egress::start(EgressConfig {
        canary,
        landlock: requirement(network.landlock),
        seccomp: requirement(network.seccomp),
        ports: network.rules.ports(),
        proxy: network.proxy.as_ref().map(|proxy| proxy.url().clone()),
        names,
        roots: TrustedRoots::read(SystemRoots::Trust, &ca.iter().map(Vec::as_slice).collect::<Vec<_>>())?,
        threads: NonZeroUsize::MIN,
    })?)
}

/// Returns the contents of the file with additional trusted certificates, if one is configured.
fn extra_certificates(ca: Option<&Path>) -> Result<Option<Vec<u8>>, TunnelStartError> {
    ca.map(|path| read_ca_file(path).map_err(|source| TunnelStartError::Ca { path: path.to_owned(), source }))
        .transpose()
}

/// Judges the connections of one session. All networks must permit a connection.
#[derive(Debug)]
pub(super) struct SessionJudge(Vec<ShellNetwork>);

impl SessionJudge {
    /// `networks` are the sidecar's network and the client's network.
    pub(super) fn new(networks: Vec<ShellNetwork>) -> Self {
        Self(networks)
    }

    fn require_all(&self, judge: impl Fn(&ShellNetwork) -> Result<(), Denial>) -> Result<(), Refusal> {
        // An empty list permits nothing.
        if self.0.is_empty() {
            return Err(Refusal {
                code: "egress_not_granted",
                reason: "the session has no network".to_owned(),
            });
        }
        self.0
            .iter()
            .try_for_each(judge)
            // The denial's text includes the hint: the program's output shows the text to the model.
            .map_err(|denial| Refusal { code: denial.code.as_str(), reason: denial.to_string() })
    }
}

impl Judge for SessionJudge {
    fn judge_request(&self, _method: &Method, url: &Url) -> Result<(), Refusal> {
        self.require_all(|network| network.judge_tunnel(url.as_str()))
    }

    fn judge_address(&self, host: &str, port: u16, address: IpAddr) -> Result<(), Refusal> {
        let Ok(host) = UrlHost::parse(host) else {
            return Err(Refusal { code: "url_refused", reason: "this is not a host".to_owned() });
        };
        self.require_all(|network| network.judge_address(&host, port, address).map(|_judged| ()))
    }

    fn judge_redirect(&self, _from: &Url, _to: &Url) -> Result<(), Refusal> {
        Err(Refusal { code: "redirect_refused", reason: "a tunnel has no redirect".to_owned() })
    }

    fn limits(&self) -> RequestLimits {
        RequestLimits::default()
    }
}
