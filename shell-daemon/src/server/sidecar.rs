//! The state that all connections share: the checked configuration and the permits.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use portcullis_confine::{
    CanaryFile,
    mounts::{MountFolder, open_mounts, real_path},
};
use portcullis_policy::{HiddenNames, ProtectedPaths};
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    SidecarServerConfig, SidecarServerError, Token, connection::ClientConnection,
    error::SidecarServerError as Error, health::ProvenPosture, refusal::RefusalCode,
    session_egress::SharedSessionEgress, session_thread::ShellProof,
};

/// The shared state of one sidecar.
#[derive(Debug)]
pub(super) struct SidecarServer {
    pub(super) config: SidecarServerConfig,
    pub(super) token: Token,
    pub(super) protect: ProtectedPaths,
    pub(super) hide: HiddenNames,
    pub(super) canary: CanaryFile,
    /// The HTTP client. `None` if the sidecar's sessions have no network.
    pub(super) clients: Option<SharedSessionEgress>,
    /// The mounts' folders, in the order of the configuration.
    mounts: Vec<OwnedFd>,
    pub(super) launcher: PathBuf,
    /// The result of the last health check.
    pub(super) health: Arc<AsyncMutex<Option<ProvenPosture>>>,
    pub(super) shell: ShellProof,
    pub(super) connections: Arc<Semaphore>,
    pub(super) sessions: Arc<Semaphore>,
    pub(super) commands: Arc<Semaphore>,
    known_connections: Mutex<Vec<Weak<ClientConnection>>>,
    /// Cancelled once no new work is accepted.
    pub(super) stopping: CancellationToken,
    /// Cancelled when all remaining connections are closed.
    pub(super) hangup: CancellationToken,
}

impl SidecarServer {
    /// Checks the configuration, opens the mounts and makes the canary.
    ///
    /// # Errors
    /// [`SidecarServerError::Config`], [`SidecarServerError::State`] or [`SidecarServerError::Mounts`] if the configuration
    /// is invalid or cannot be met.
    pub(super) fn new(config: SidecarServerConfig, token: Token) -> Result<Self, SidecarServerError> {
        require_values(&config)?;
        let protect = ProtectedPaths::parse(config.protected.iter().map(String::as_str))
            .map_err(|invalid| Error::Config { setting: "protected", problem: invalid.to_string() })?;
        let hide = HiddenNames::parse(config.hidden.iter().map(String::as_str))
            .map_err(|invalid| Error::Config { setting: "hidden", problem: invalid.to_string() })?;
        let canary = CanaryFile::create(&config.state).map_err(|source| Error::State { source })?;
        let folders: Vec<_> = config
            .mounts
            .iter()
            .map(|mount| MountFolder { name: &mount.name, folder: &mount.folder })
            .collect();
        let mut private = config.private.clone();
        // A mount must not hold the sidecar's own state, which a command could then change.
        private.push(config.state.clone());
        let mounts =
            open_mounts(&config.workspace, &folders, &private).map_err(|source| Error::Mounts { source })?;
        let names = config.mounts.iter().map(|mount| mount.name.as_str());
        let paths = mounts.iter().map(|mount| real_path(mount.as_fd()));
        let named_paths: Vec<_> =
            names.zip(paths).filter_map(|(name, path)| Some((name, path.ok()?))).collect();
        config.toolchain.check(&named_paths, &private).map_err(|unusable| Error::Config {
            setting: "read",
            problem: portcullis_types::error_chain(&unusable),
        })?;
        config.toolchain.check_caches(&named_paths, &private).map_err(|unusable| Error::Config {
            setting: "caches",
            problem: portcullis_types::error_chain(&unusable),
        })?;
        let service = config.service;
        Ok(Self {
            mounts,
            token,
            protect,
            hide,
            clients: config.network.clone().map(|network| SharedSessionEgress::new(network, canary.clone())),
            canary,
            launcher: "/proc/self/exe".into(),
            health: Arc::default(),
            shell: ShellProof::default(),
            connections: Arc::new(Semaphore::new(service.connections)),
            sessions: Arc::new(Semaphore::new(service.sessions)),
            commands: Arc::new(Semaphore::new(service.commands)),
            known_connections: Mutex::default(),
            stopping: CancellationToken::new(),
            hangup: CancellationToken::new(),
            config,
        })
    }

    /// The current path of a mount's folder.
    ///
    /// # Errors
    /// `mounts`, if no mount has this name or its folder is gone.
    pub(super) fn mount_path(&self, mount: &str) -> Result<PathBuf, Status> {
        let index = self.config.mounts.iter().position(|configured| configured.name == mount);
        let handle = index.and_then(|index| self.mounts.get(index));
        let path = handle.and_then(|handle| real_path(handle.as_fd()).ok());
        path.ok_or_else(|| RefusalCode::Mounts.status(format!("the mount `{mount}` does not exist")))
    }

    pub(super) fn register_connection(&self, connection: &Arc<ClientConnection>) {
        let mut connections = self.known_connections.lock();
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(connection));
    }

    /// Closes the oldest connection that has not sent the token. Returns `false` if there is none.
    pub(super) fn close_unauthenticated(&self) -> bool {
        let connections = self.known_connections.lock();
        let unauthenticated =
            connections.iter().filter_map(Weak::upgrade).find(|connection| connection.is_unauthenticated());
        unauthenticated.inspect(|unauthenticated| unauthenticated.cut()).is_some()
    }

    pub(super) fn cancel_commands(&self) {
        let connections = self.known_connections.lock().clone();
        for connection in connections.iter().filter_map(Weak::upgrade) {
            connection.cancel_commands();
        }
    }

    /// # Errors
    /// `stopping`, if the sidecar is about to stop.
    pub(super) fn require_running(&self) -> Result<(), Status> {
        if self.stopping.is_cancelled() {
            return Err(RefusalCode::Stopping.status("the sidecar is about to stop"));
        }
        Ok(())
    }
}

/// Takes one permit.
///
/// # Errors
/// `limit`, if no permit is left.
pub(super) fn take_permit(permits: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, Status> {
    Arc::clone(permits).try_acquire_owned().map_err(|_full_or_closed| {
        RefusalCode::Limit.status(format!("the sidecar has reached its limit of {what}"))
    })
}

fn require_values(config: &SidecarServerConfig) -> Result<(), SidecarServerError> {
    let refuse = |setting, problem: String| Err(Error::Config { setting, problem });
    if !config.mounts.iter().any(|mount| mount.name == config.home) {
        return refuse("home", format!("`{}` is not one of the mounts", config.home));
    }
    for (index, mount) in config.mounts.iter().enumerate() {
        if config.mounts[..index].iter().any(|other| other.name == mount.name) {
            return refuse("mounts", format!("have `{}` twice", mount.name));
        }
    }
    let service = &config.service;
    for (setting, value) in [
        ("connections", service.connections),
        ("sessions", service.sessions),
        ("sessions_per_connection", service.sessions_per_connection),
        ("commands", service.commands),
    ] {
        if value == 0 || value > MAX_PERMITS {
            return refuse(setting, format!("must be from 1 to {MAX_PERMITS}"));
        }
    }
    if config.session.command_timeout > config.session.max_command_timeout {
        return refuse("command_timeout", "must be at most max_command_timeout".to_owned());
    }
    Ok(())
}

/// The maximum of these settings. A higher number is a mistake. tokio's semaphore also has a maximum.
const MAX_PERMITS: usize = 65_536;
