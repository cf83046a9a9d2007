//! The threads that make the connections of sessions, started by the first session with a network, and the judge of
//! each connection.
//!
//! The daemon itself connects nowhere. Its forwarders hand each connection of a session to these threads, which may
//! connect and can do nothing else.

use std::{
    error::Error,
    fs::File,
    io::{self, Read as _},
    net::IpAddr,
    num::NonZeroUsize,
    path::Path,
    sync::Arc,
};

use portcullis_confine::{Canary, Requirement};
use portcullis_egress::{
    Egress, EgressSettings, Judge, Limits, Method, NameSettings, Refusal, SystemRoots, TrustedRoots, Url,
    certificate_bundle,
};
use portcullis_policy::{Denial, Host, ShellNetwork};
use tokio::sync::Mutex;

use super::DaemonNetwork;

/// The started threads.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) egress: Egress,
    /// The certificates that the sessions' programs trust, in PEM form.
    pub(super) certificates: Arc<str>,
}

/// The gate, or the settings to start it with.
#[derive(Debug)]
pub(super) struct LazyGate {
    network: DaemonNetwork,
    canary: Canary,
    started: Mutex<Option<Arc<Gate>>>,
}

impl LazyGate {
    pub(super) fn new(network: DaemonNetwork, canary: Canary) -> Self {
        Self { network, canary, started: Mutex::default() }
    }

    /// The started gate. A failed start is tried again by the next session: a name server may be configured meanwhile.
    ///
    /// # Errors
    /// The reason for operators. No connection is ever made elsewhere.
    pub(super) async fn get(&self) -> Result<Arc<Gate>, String> {
        let mut started = self.started.lock().await;
        if let Some(gate) = &*started {
            return Ok(Arc::clone(gate));
        }
        let (network, canary) = (self.network.clone(), self.canary.clone());
        let gate = tokio::task::spawn_blocking(move || start(&network, canary));
        let gate =
            gate.await.map_err(|_panicked| "the thread that starts the gate has panicked".to_owned())?;
        let gate = gate.map_err(|error| portcullis_types::chain(&*error)).inspect_err(|reason| {
            tracing::warn!(reason, "the sessions have no network");
        })?;
        Ok(Arc::clone(started.insert(Arc::new(gate))))
    }
}

fn start(network: &DaemonNetwork, canary: Canary) -> Result<Gate, Box<dyn Error + Send + Sync>> {
    let ca = network.ca.as_deref().map(read_bounded).transpose()?;
    let ca: Vec<&[u8]> = ca.as_deref().into_iter().collect();
    let requirement = |is_required| if is_required { Requirement::Required } else { Requirement::Waived };
    let egress = Egress::start(EgressSettings {
        canary,
        landlock: requirement(network.landlock),
        seccomp: requirement(network.seccomp),
        ports: network.rules.ports(),
        names: NameSettings::read_system()?,
        roots: TrustedRoots::read(SystemRoots::Trust, &ca)?,
        threads: NonZeroUsize::MIN,
    })?;
    Ok(Gate { egress, certificates: certificate_bundle(SystemRoots::Trust, &ca)?.into() })
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("the certificates in {} cannot be read: {error}", path.display()),
        )
    };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(CA_BYTES + 1).read_to_end(&mut bytes)).map_err(named)?;
    match bytes.len() as u64 > CA_BYTES {
        true => Err(named(io::Error::other(format!("more than {CA_BYTES} bytes")))),
        false => Ok(bytes),
    }
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

/// Bytes of the file with further certificates.
const CA_BYTES: u64 = 1 << 20;
