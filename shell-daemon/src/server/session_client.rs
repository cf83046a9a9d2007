//! The threads that make the connections of sessions, started by the first session with a network, and the judge of
//! each connection.
//!
//! The daemon itself connects nowhere. Its forwarders hand each connection of a session to these threads, which may
//! connect and can do nothing else.

use std::{
    io,
    net::IpAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use portcullis_confine::{Canary, Requirement};
use portcullis_egress::{
    Egress, EgressError, EgressSettings, Judge, LazyEgress, Limits, Method, NameSettings, Refusal,
    SystemRoots, TrustedRoots, Url, certificate_bundle, read_ca,
};
use portcullis_policy::{Denial, Host, ShellNetwork};
use tokio::sync::OnceCell;

use super::DaemonNetwork;

/// What a session with a network is made with.
#[derive(Debug, Clone)]
pub(super) struct SessionClient {
    /// The client that makes its connections.
    pub(super) egress: Arc<Egress>,
    /// The certificates that its programs trust, in PEM form.
    pub(super) certificates: Arc<str>,
}

/// The client of all sessions, and the settings to start it with.
#[derive(Debug)]
pub(super) struct SessionClients {
    network: DaemonNetwork,
    canary: Canary,
    egress: LazyEgress,
    certificates: OnceCell<Arc<str>>,
}

impl SessionClients {
    pub(super) fn new(network: DaemonNetwork, canary: Canary) -> Self {
        Self { network, canary, egress: LazyEgress::default(), certificates: OnceCell::new() }
    }

    /// The client, which starts with the first session ([`LazyEgress::get`]).
    ///
    /// # Errors
    /// The reason for operators. No connection is ever made elsewhere.
    pub(super) async fn get(&self) -> Result<SessionClient, String> {
        let client = async {
            let (network, canary) = (self.network.clone(), self.canary.clone());
            let egress = self.egress.get(move || start(&network, canary)).await?;
            let ca = self.network.ca.clone();
            let certificates = self.certificates.get_or_try_init(|| async {
                let read = move || -> Result<Arc<str>, GateError> {
                    let ca = further(ca.as_deref())?;
                    Ok(certificate_bundle(
                        SystemRoots::Trust,
                        &ca.iter().map(Vec::as_slice).collect::<Vec<_>>(),
                    )?
                    .into())
                };
                tokio::task::spawn_blocking(read).await.map_err(|_panicked| GateError::Panicked)?
            });
            Ok(SessionClient { egress, certificates: Arc::clone(certificates.await?) })
        };
        client.await.map_err(|error: GateError| portcullis_types::chain(&error)).inspect_err(|reason| {
            tracing::warn!(reason, "the sessions have no network");
        })
    }
}

/// Why sessions have no network.
#[derive(Debug, thiserror::Error)]
enum GateError {
    #[error("the certificates in {} cannot be read", .path.display())]
    Ca { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("the thread that reads the certificates has panicked")]
    Panicked,
}

fn start(network: &DaemonNetwork, canary: Canary) -> Result<Egress, GateError> {
    let ca = further(network.ca.as_deref())?;
    let (names, missing) = NameSettings::read_available()?;
    if let Some(reason) = &missing {
        let error = reason as &dyn std::error::Error;
        tracing::warn!(error, "no name server is asked: only names of /etc/hosts can be reached");
    }
    let requirement = |is_required| if is_required { Requirement::Required } else { Requirement::Waived };
    Ok(Egress::start(EgressSettings {
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

/// The text with further certificates, if there is a file.
fn further(ca: Option<&Path>) -> Result<Option<Vec<u8>>, GateError> {
    ca.map(|path| read_ca(path).map_err(|source| GateError::Ca { path: path.to_owned(), source })).transpose()
}

/// Judges the connections of one session. Each of the networks must let a connection through.
#[derive(Debug)]
pub(super) struct SessionJudge(Vec<ShellNetwork>);

impl SessionJudge {
    /// `networks` are the daemon's and the client's.
    pub(super) fn new(networks: Vec<ShellNetwork>) -> Self {
        Self(networks)
    }

    fn all(&self, judge: impl Fn(&ShellNetwork) -> Result<(), Denial>) -> Result<(), Refusal> {
        // An empty list lets nothing through.
        if self.0.is_empty() {
            return Err(Refusal {
                code: "egress_not_granted",
                reason: "the session has no network".to_owned(),
            });
        }
        self.0
            .iter()
            .try_for_each(judge)
            .map_err(|denial| Refusal { code: denial.code.as_str(), reason: denial.message() })
    }
}

impl Judge for SessionJudge {
    fn request(&self, _method: &Method, url: &Url) -> Result<(), Refusal> {
        self.all(|network| network.judge_tunnel(url.as_str()))
    }

    fn address(&self, host: &str, port: u16, address: IpAddr) -> Result<(), Refusal> {
        let Ok(host) = Host::parse(host) else {
            return Err(Refusal { code: "url_refused", reason: "this is no host".to_owned() });
        };
        self.all(|network| network.judge_address(&host, port, address).map(|_judged| ()))
    }

    fn redirect(&self, _from: &Url, _to: &Url) -> Result<(), Refusal> {
        Err(Refusal { code: "redirect_refused", reason: "a tunnel has no redirect".to_owned() })
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}
