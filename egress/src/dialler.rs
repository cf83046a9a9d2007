//! Connections to a few origins, for a client of this process that speaks its own protocol: a model's provider.
//!
//! The operator has named the origins in the client's own settings, so that their addresses are not judged. The thread
//! that dials may connect to their ports, and to name servers, and do nothing else.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::IpAddr,
    net::TcpStream,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::Method;
use portcullis_confine::{Canary, ConfineError, Requirement};
use tempfile::TempDir;
use url::{Host, Url};

use crate::{
    Egress, EgressError, EgressSettings, FetchError, Judge, LazyEgress, Limits, NameSettings, Refusal,
    TrustedRoots,
};

/// The settings of a [`Dialler`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiallerSettings {
    /// Whether the thread must have Landlock, which holds the ports.
    pub landlock: Requirement,
    /// Whether the thread must have the system-call filter.
    pub seccomp: Requirement,
    /// The name servers' answer, and then the connection to each address of a name.
    pub connect: Duration,
    /// The folder of the canary, whose refusal proves the confinement; it must exist when the first connection is made.
    /// Default: none, which makes a temporary one.
    pub folder: Option<PathBuf>,
}

/// Hands out connections to some origins. Its thread starts with the first connection.
pub struct Dialler {
    origins: Arc<Origins>,
    /// Whether a name server may be needed.
    needs_names: bool,
    settings: DiallerSettings,
    egress: LazyEgress,
    /// The temporary folder of the canary, if it is needed.
    temporary: Arc<OnceLock<TempDir>>,
}

/// No connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// The folder of the thread's canary could not be made.
    #[error("make a temporary folder for the proof of confinement")]
    Folder(#[source] io::Error),
    /// The canary could not be made.
    #[error("prepare the proof of confinement")]
    Canary(#[source] ConfineError),
    /// The thread could not be started.
    #[error(transparent)]
    Start(#[from] EgressError),
    /// The connection failed.
    #[error(transparent)]
    Connect(#[from] FetchError),
}

impl Dialler {
    /// A dialler to the hosts and ports of these URLs. Nothing is started yet.
    #[must_use]
    pub fn new<'a>(origins: impl IntoIterator<Item = &'a Url>, settings: DiallerSettings) -> Self {
        let (mut places, mut needs_names) = (BTreeSet::new(), false);
        for url in origins {
            needs_names |= matches!(url.host(), Some(Host::Domain(name)) if name != "localhost");
            places.extend(place(url));
        }
        let limits = Limits { connect: settings.connect, first_byte: settings.connect, ..Limits::default() };
        let origins = Arc::new(Origins { places, limits });
        Self { origins, needs_names, settings, egress: LazyEgress::default(), temporary: Arc::default() }
    }

    /// Connects to the host and port of a URL. The stream does not block, and has no TLS.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// [`DialError::Connect`] with the code `origin_not_configured` for another origin.
    pub async fn dial(&self, url: Url) -> Result<TcpStream, DialError> {
        let (settings, needs_names) = (self.settings.clone(), self.needs_names);
        let ports = self.origins.places.iter().map(|(_, port)| *port).collect();
        let temporary = Arc::clone(&self.temporary);
        let egress = self.egress.get(move || start(&settings, &temporary, ports, needs_names)).await?;
        Ok(egress.dial(Arc::clone(&self.origins) as Arc<dyn Judge>, url).await?)
    }
}

/// Without the thread.
impl fmt::Debug for Dialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialler").field("origins", &self.origins.places).finish_non_exhaustive()
    }
}

fn start(
    settings: &DiallerSettings,
    temporary: &OnceLock<TempDir>,
    ports: BTreeSet<u16>,
    needs_names: bool,
) -> Result<Egress, DialError> {
    let canary = match (&settings.folder, temporary.get()) {
        (Some(path), _) => Canary::create(path),
        (None, Some(folder)) => Canary::create(folder.path()),
        (None, None) => {
            let folder = tempfile::tempdir().map_err(DialError::Folder)?;
            Canary::create(temporary.get_or_init(|| folder).path())
        }
    };
    Ok(Egress::start(EgressSettings {
        canary: canary.map_err(DialError::Canary)?,
        landlock: settings.landlock,
        seccomp: settings.seccomp,
        ports,
        proxy: None,
        // A machine without name servers reaches servers of its own.
        names: if needs_names { NameSettings::read_system()? } else { NameSettings::read_hosts()? },
        roots: TrustedRoots::none(),
        threads: NonZeroUsize::MIN,
    })?)
}

/// The judge: these hosts and ports, at whatever address.
struct Origins {
    places: BTreeSet<(String, u16)>,
    limits: Limits,
}

fn place(url: &Url) -> Option<(String, u16)> {
    Some((url.host_str()?.to_owned(), url.port_or_known_default()?))
}

impl Judge for Origins {
    fn request(&self, _method: &Method, url: &Url) -> Result<(), Refusal> {
        match place(url).is_some_and(|place| self.places.contains(&place)) {
            true => Ok(()),
            false => Err(Refusal {
                code: "origin_not_configured",
                reason: "this host and port are not in the client's settings".to_owned(),
            }),
        }
    }

    fn address(&self, _host: &str, _port: u16, _address: IpAddr) -> Result<(), Refusal> {
        Ok(())
    }

    fn redirect(&self, _from: &Url, _to: &Url) -> Result<(), Refusal> {
        Err(Refusal { code: "redirect_refused", reason: "no redirect is followed".to_owned() })
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }
}
