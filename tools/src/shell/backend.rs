//! The backends of the shell tool: where commands run.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    connect::{SidecarOptions, SidecarSource, StartSidecar},
    sidecar::Sidecar,
};

/// The shell that a sidecar on this machine runs commands with.
const BASH: &str = "/bin/bash";

/// The backend of the shell tool. It is chosen when the registry is built and never changes: there is no
/// fallback to another backend.
#[derive(Debug, Clone)]
pub enum ShellBackend {
    /// Commands run in the sessions of a sidecar, which confines them.
    Session(Arc<Sidecar>),
    /// Commands run in the sessions of a sidecar without confinement. For local development, and only if the
    /// operator asks for it by name. Each result says so.
    Host(Arc<Sidecar>),
    /// No commands run.
    Disabled {
        /// The reason, for listings.
        reason: String,
    },
}

/// The source of the sidecar.
#[derive(Debug, Clone, Default)]
pub enum ShellSource {
    /// There is no sidecar, so there is no shell.
    #[default]
    Nowhere,
    /// A sidecar that this program starts with the first command.
    Own(Arc<dyn StartSidecar>),
    /// A sidecar that this program starts without confinement.
    Host(Arc<dyn StartSidecar>),
    /// A sidecar that is already running.
    Socket {
        /// The path of the sidecar's socket.
        path: PathBuf,
        /// The file with the sidecar's token.
        token_file: PathBuf,
    },
}

impl ShellBackend {
    /// Returns the backend for this source.
    pub(crate) fn new(source: &ShellSource, options: SidecarOptions) -> Self {
        if let Some(absence) = options.policy.shell_absence() {
            return Self::Disabled { reason: absence.remedy().to_owned() };
        }
        let is_own = matches!(source, ShellSource::Own(_) | ShellSource::Host(_));
        if is_own && !Path::new(BASH).exists() {
            return Self::Disabled { reason: format!("there is no `{BASH}` here, which runs the commands") };
        }
        let policy = Arc::clone(&options.policy);
        let sidecar = |source| Arc::new(Sidecar::new(source, policy.shell()));
        match source {
            ShellSource::Nowhere => {
                Self::Disabled { reason: "this program was given no shell sidecar".to_owned() }
            }
            ShellSource::Own(starter) => {
                Self::Session(sidecar(SidecarSource::Own { starter: Arc::clone(starter), options }))
            }
            ShellSource::Host(starter) => {
                let options = SidecarOptions { unconfined: true, ..options };
                Self::Host(sidecar(SidecarSource::Own { starter: Arc::clone(starter), options }))
            }
            ShellSource::Socket { path, token_file } => Self::Session(sidecar(SidecarSource::Socket {
                path: path.clone(),
                token_file: token_file.clone(),
            })),
        }
    }

    /// The sidecar, if there is one.
    #[must_use]
    pub fn sidecar(&self) -> Option<&Arc<Sidecar>> {
        match self {
            Self::Session(sidecar) | Self::Host(sidecar) => Some(sidecar),
            Self::Disabled { .. } => None,
        }
    }
}

impl fmt::Display for ShellBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(sidecar) => write!(f, "sessions of {sidecar}"),
            Self::Host(_) => f.write_str("on the host, unconfined"),
            Self::Disabled { reason } => write!(f, "disabled: {reason}"),
        }
    }
}
