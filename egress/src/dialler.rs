//! Connections to a few origins, for a client of this process that speaks the protocol of a model's provider.
//!
//! The operator has named the origins in the client's own settings, so their addresses are not judged. The
//! dialling thread can only connect to their ports and to name servers.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::TcpStream,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use portcullis_confine::{CanaryFile, ConfineError, Requirement};
use tempfile::TempDir;
use url::{Host, Url};

use crate::{
    ConfiguredOrigins, DnsConfig, Egress, EgressConfig, EgressError, FetchError, Judge, LazyEgress,
    RequestLimits, TrustedRoots,
};

/// The settings of a [`Dialler`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiallerSettings {
    /// Whether the thread must have Landlock, which bounds the ports.
    pub landlock: Requirement,
    /// Whether the thread must have the system-call filter.
    pub seccomp: Requirement,
    /// The timeout for the name servers' answer, and then for each address of a name.
    pub connect_timeout: Duration,
    /// The folder of the canary, which is a part of the proof of confinement. The folder must exist when the
    /// first connection is opened. `None` means a temporary folder.
    pub folder: Option<PathBuf>,
}

/// A dialler, which opens connections to some origins. Its thread starts with the first connection.
pub struct Dialler {
    origins: Arc<ConfiguredOrigins>,
    /// Whether a name server may be needed.
    needs_names: bool,
    settings: DiallerSettings,
    egress: LazyEgress,
    /// The temporary folder of the canary, if it is needed.
    temporary: Arc<OnceLock<TempDir>>,
}

/// The reason why no connection was opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// The folder of the thread's canary could not be created.
    #[error("cannot make a temporary folder for the proof of confinement")]
    Folder(#[source] io::Error),
    /// The canary could not be created.
    #[error("cannot prepare the proof of confinement")]
    CanaryFile(#[source] ConfineError),
    /// The thread could not be started.
    #[error(transparent)]
    Start(#[from] EgressError),
    /// The connection failed.
    #[error(transparent)]
    Connect(#[from] FetchError),
}

impl Dialler {
    /// Creates a dialler to the hosts and ports of these URLs. It starts nothing yet.
    #[must_use]
    pub fn new<'a>(origins: impl IntoIterator<Item = &'a Url>, settings: DiallerSettings) -> Self {
        let limits = RequestLimits {
            connect_timeout: settings.connect_timeout,
            first_byte_timeout: settings.connect_timeout,
            ..RequestLimits::default()
        };
        let urls: Vec<&Url> = origins.into_iter().collect();
        let is_name = |url: &&Url| matches!(url.host(), Some(Host::Domain(name)) if name != "localhost");
        let needs_names = urls.iter().any(is_name);
        let origins = Arc::new(ConfiguredOrigins::new(urls, limits));
        Self { origins, needs_names, settings, egress: LazyEgress::default(), temporary: Arc::default() }
    }

    /// Connects to the host and port of a URL. The stream is non-blocking and has no TLS.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// [`DialError::Connect`] with the code `origin_not_configured` for another origin, or the reason why the
    /// connection could not be opened.
    pub async fn dial(&self, url: Url) -> Result<TcpStream, DialError> {
        let (settings, needs_names) = (self.settings.clone(), self.needs_names);
        let ports = self.origins.ports();
        let temporary = Arc::clone(&self.temporary);
        let egress = self.egress.get(move || start(&settings, &temporary, ports, needs_names)).await?;
        Ok(egress.dial(Arc::clone(&self.origins) as Arc<dyn Judge>, url).await?)
    }
}

/// Omits the thread.
impl fmt::Debug for Dialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialler").field("origins", &self.origins).finish_non_exhaustive()
    }
}

fn start(
    settings: &DiallerSettings,
    temporary: &OnceLock<TempDir>,
    ports: BTreeSet<u16>,
    needs_names: bool,
) -> Result<Egress, DialError> {
    let canary = match (&settings.folder, temporary.get()) {
        (Some(path), _) => CanaryFile::create(path),
        (None, Some(folder)) => CanaryFile::create(folder.path()),
        (None, None) => {
            // `LazyEgress` runs one start at a time, so no other start has stored a folder since `get`.
            let folder = tempfile::tempdir().map_err(DialError::Folder)?;
            CanaryFile::create(temporary.get_or_init(|| folder).path())
        }
    };
    Ok(Egress::start(EgressConfig {
        canary: canary.map_err(DialError::CanaryFile)?,
        landlock: settings.landlock,
        seccomp: settings.seccomp,
        ports,
        proxy: None,
        // Only host names need name servers. Without them, addresses and names in the hosts file can still be
        // reached.
        names: if needs_names { DnsConfig::read_system()? } else { DnsConfig::read_hosts()? },
        roots: TrustedRoots::empty(),
        threads: NonZeroUsize::MIN,
    })?)
}
