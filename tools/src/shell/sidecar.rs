//! This process's view of a sidecar: at most one connection, with its sessions.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use portcullis_policy::{GrantedMount, ShellGrant, ShellNetwork, ShellPolicy};
use tokio::sync::Mutex as AsyncMutex;

use super::{
    connect::{SidecarClient, SidecarConnection, SidecarSource},
    failure::SidecarError,
    session::SidecarSession,
};
use crate::{call::Owner, digest, run_labels::RunLabels};
use portcullis_shell_protocol as protocol;
use portcullis_shell_protocol::{CreateSessionRequest, HealthRequest, NetworkRequest, SessionLimits};

/// Runs commands in sessions that keep their state. Connects on first use, and reconnects after the
/// connection breaks. The sessions are lost with the connection, and commands are never retried.
#[derive(Debug)]
pub struct Sidecar {
    source: SidecarSource,
    /// The variables of this process's environment that the policy passes on.
    environment: HashMap<String, String>,
    connection: AsyncMutex<Option<Arc<ConnectedSidecar>>>,
    /// The same connection, for [`Self::end_run`], which cannot wait for the async lock above.
    last_connection: Mutex<Weak<ConnectedSidecar>>,
    state: AtomicU8,
}

/// Whether a sidecar can create sessions, as far as this process knows.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SidecarState {
    /// No session has been requested yet.
    Unknown,
    /// The sidecar has created a session.
    Serving,
    /// The sidecar refused the first session, because this machine cannot confine it.
    Refusing,
}

/// A connection with its sessions.
#[derive(Debug)]
pub(super) struct ConnectedSidecar {
    connection: SidecarConnection,
    /// Each slot has its own lock, so that two concurrent first commands share one session. A session ends
    /// when its slot has been removed and its last command has ended.
    sessions: Mutex<HashMap<SessionKey, SessionSlot>>,
}

/// The slot of a session, possibly empty.
type SessionSlot = Arc<AsyncMutex<Option<SidecarSession>>>;

/// The key of a session: its owner, and the name that the run gave it. A run can never reach the session of
/// another run, even under the same agent name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SessionKey {
    pub(super) owner: Owner,
    pub(super) name: String,
    /// Whether the session runs commands that an `unasked` rule allows without an approval. They never share
    /// a session with approved commands: an approved command could define a shell function with the name of a
    /// program, which would change what the rule allows.
    pub(super) is_unasked: bool,
}

/// The settings of a new session.
#[derive(Debug)]
pub(super) struct SessionSettings<'a> {
    pub(super) shell: &'a ShellGrant,
    pub(super) mounts: &'a [GrantedMount],
    /// Variables from this process's environment.
    pub(super) environment: HashMap<String, String>,
    /// Whether the session runs unconfined. Then no posture is required.
    pub(super) unconfined: bool,
    /// The labels of the runs, which also list the sessions with a network.
    pub(super) labels: &'a Arc<RunLabels>,
}

/// A sidecar's report on itself, with evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarHealth {
    /// The sidecar's version.
    pub version: String,
    /// `strong`, `contained`, `minimal` or `none`.
    pub posture: String,
    /// One line about the confinement, as in audit rows.
    pub summary: String,
    /// Each layer, with the attempts that prove it.
    pub layers: Vec<LayerHealth>,
    /// The user of the sidecar's sessions, if it differs from the sidecar's own user.
    pub uid: Option<u32>,
    /// Name and access of each mount.
    pub mounts: Vec<(String, String)>,
    /// The hosts that the sidecar's sessions can reach. Empty without a network.
    pub hosts: Vec<String>,
    /// Why the sessions have no network although the policy grants hosts. `None` if they have one.
    pub network_absence: Option<String>,
}

/// One layer of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerHealth {
    /// The layer's name.
    pub name: String,
    /// `enforced`, `partial`, `waived` or `missing`.
    pub status: String,
    /// The missing part, and how to enable it.
    pub reason: String,
    /// Each attempt, with its outcome before and after confinement.
    pub evidence: Vec<(String, String, String)>,
}

impl Sidecar {
    /// `shell` names the environment variables to pass on. Their values are read here.
    pub(super) fn new(source: SidecarSource, shell: Option<&ShellPolicy>) -> Self {
        let names = shell.into_iter().flat_map(|shell| &shell.environment);
        let environment =
            names.filter_map(|name| Some((name.to_string(), std::env::var(name.as_str()).ok()?)));
        let environment = environment.collect();
        Self {
            source,
            environment,
            connection: AsyncMutex::new(None),
            last_connection: Mutex::default(),
            state: AtomicU8::default(),
        }
    }

    /// Whether the sidecar records changes in mounts with `undo`. Only a sidecar that this program
    /// starts shares the store.
    pub(super) fn keeps_changes(&self) -> bool {
        matches!(self.source, SidecarSource::Own { .. })
    }

    /// Why no command can run here, if that is known: the first session could not be confined as the policy
    /// requires. Other failures do not count. A failure after a success may be temporary, and a sidecar that
    /// this program did not start may be replaced.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        let is_refusing = self.state.load(Ordering::Relaxed) == SidecarState::Refusing as u8;
        is_refusing
            .then_some("this machine cannot confine the shell as the policy requires; run `portcullis doctor` for the reason")
    }

    /// Records that a session was created.
    pub(super) fn mark_serving(&self) {
        self.state.store(SidecarState::Serving as u8, Ordering::Relaxed);
    }

    /// The variables of this process's environment that the policy passes on.
    pub(super) fn environment(&self) -> &HashMap<String, String> {
        &self.environment
    }

    /// Returns the sidecar's report on itself. To produce it, the sidecar starts a session with the variables
    /// of commands, and ends it.
    ///
    /// # Errors
    /// [`SidecarError`] if the sidecar cannot be reached or started, or if it refuses.
    ///
    /// # Cancellation
    /// Safe: the function changes nothing.
    pub async fn health(&self) -> Result<SidecarHealth, SidecarError> {
        let connection = self.connect_if_needed().await?;
        let request = HealthRequest { environment: self.environment.clone() };
        let answer = connection.client().health(request).await;
        let answer = match answer {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Err(self.record_failure(&connection, SidecarError::refused(status)).await),
        };
        let posture = answer.posture.ok_or(SidecarError::Answer { problem: "it names no posture" })?;
        Ok(SidecarHealth {
            version: answer.version,
            posture: posture.posture,
            summary: posture.summary,
            uid: posture.uid,
            layers: posture.layers.into_iter().map(layer_health).collect(),
            mounts: answer.mounts.into_iter().map(|mount| (mount.name, mount.access)).collect(),
            hosts: posture.network.as_ref().map(|network| network.hosts.clone()).unwrap_or_default(),
            network_absence: posture
                .network
                .map(|network| network.absence)
                .filter(|absence| !absence.is_empty()),
        })
    }

    /// Returns the connection. Connects if there is none.
    pub(super) async fn connect_if_needed(&self) -> Result<Arc<ConnectedSidecar>, SidecarError> {
        let mut connection_slot = self.connection.lock().await;
        if let Some(connection) = &*connection_slot {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(ConnectedSidecar {
            connection: self.source.connect().await?,
            sessions: Mutex::default(),
        });
        *self.last_connection.lock() = Arc::downgrade(&connection);
        *connection_slot = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Ends the sessions of a run, without waiting. A session with a running command ends after that command.
    pub(crate) fn end_run(&self, owner: &Owner) {
        let last_connection = self.last_connection.lock().upgrade();
        if let Some(connection) = last_connection {
            connection.sessions().retain(|key, _| key.owner != *owner);
        }
    }

    /// Handles a failure. If the connection is lost, the next call reconnects.
    pub(super) async fn record_failure(
        &self,
        connection: &Arc<ConnectedSidecar>,
        error: SidecarError,
    ) -> SidecarError {
        if error.is_about_this_machine() && matches!(self.source, SidecarSource::Own { .. }) {
            let (unknown, refusing) = (SidecarState::Unknown as u8, SidecarState::Refusing as u8);
            // Change the state only from `Unknown`: a failure after a success may be temporary.
            let _known = self.state.compare_exchange(unknown, refusing, Ordering::Relaxed, Ordering::Relaxed);
        }
        if error.ends_connection() {
            let mut connection_slot = self.connection.lock().await;
            if connection_slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
                *connection_slot = None;
            }
        }
        error
    }
}

impl fmt::Display for Sidecar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            SidecarSource::Socket { path, .. } => write!(f, "the sidecar at {}", path.display()),
            SidecarSource::Own { .. } => f.write_str("a separate sidecar"),
        }
    }
}

impl ConnectedSidecar {
    /// Returns a client, which is cheap to clone. All clones share the connection.
    pub(super) fn client(&self) -> SidecarClient {
        self.connection.client.clone()
    }

    /// Returns the slot of a session, possibly empty. `None` if the run already has
    /// [`MAX_SESSIONS_OF_A_RUN`] sessions.
    pub(super) fn slot_of(&self, key: &SessionKey) -> Option<SessionSlot> {
        self.forget_empty(&key.owner);
        let mut sessions = self.sessions();
        if !sessions.contains_key(key)
            && sessions.keys().filter(|session_key| session_key.owner == key.owner).count()
                >= MAX_SESSIONS_OF_A_RUN
        {
            return None;
        }
        Some(Arc::clone(sessions.entry(key.clone()).or_default()))
    }

    /// Returns the names of a run's sessions.
    pub(super) fn names_of(&self, owner: &Owner) -> Vec<String> {
        let sessions = self.sessions();
        let mut names: Vec<String> =
            sessions.keys().filter(|key| key.owner == *owner).map(|key| key.name.clone()).collect();
        names.sort_unstable();
        // Commands with and without an approval have separate sessions, which may have the same name.
        names.dedup();
        names
    }

    /// Removes the empty slots of a run, unless a call is about to fill them. Their session was never
    /// created, or is lost.
    pub(super) fn forget_empty(&self, owner: &Owner) {
        self.sessions().retain(|key, slot| {
            // The map is locked, so no call can take a slot meanwhile. A call that already has the slot may
            // be about to fill it.
            key.owner != *owner
                || Arc::strong_count(slot) > 1
                || slot.try_lock().map_or(true, |session| session.is_some())
        });
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, SessionSlot>> {
        self.sessions.lock()
    }

    /// Creates a session, and checks that its posture is as strong as the policy requires.
    pub(super) async fn create(
        &self,
        owner: &Owner,
        settings: &SessionSettings<'_>,
    ) -> Result<SidecarSession, SidecarError> {
        let least_posture = (!settings.unconfined).then_some(settings.shell.posture);
        let request = CreateSessionRequest {
            least_posture: least_posture.map(|posture| posture.to_string()).unwrap_or_default(),
            mounts: settings
                .mounts
                .iter()
                .map(|mount| protocol::Mount {
                    name: mount.name.to_string(),
                    access: mount.access.to_string(),
                })
                .collect(),
            limits: Some(SessionLimits {
                memory_bytes: settings.shell.memory.0,
                processes: settings.shell.processes.into(),
                file_bytes: settings.shell.file_size.0,
                output_bytes: settings.shell.output.0,
                command_timeout_ms: 0,
            }),
            environment: settings.environment.clone(),
            // An empty list never means all mounts: the sidecar refuses it, so a grant without
            // mounts gets no session.
            all_mounts: false,
            network: settings.network().map(network_request),
            all_hosts: false,
            owner: name_of(owner),
        };
        let created =
            self.client().create_session(request).await.map_err(SidecarError::refused)?.into_inner();
        let posture = created.posture.ok_or(SidecarError::Answer { problem: "it names no posture" })?;
        // If the posture is refused, dropping this value ends the session.
        let session =
            SidecarSession::new(created.session_id, owner, posture.clone(), self.client(), settings.labels);
        if let Some(least) = least_posture
            && !posture.posture.parse::<portcullis_types::ShellPosture>().is_ok_and(|actual| actual >= least)
        {
            return Err(SidecarError::Posture { found: posture.posture, required_posture: least });
        }
        Ok(session)
    }
}

/// Returns the owner's name for the sidecar. Different owners have different names, whatever their
/// agents are called.
fn name_of(owner: &Owner) -> String {
    let is_there = |part: &Option<Arc<str>>| if part.is_some() { "1" } else { "" };
    let text = |part: &Option<Arc<str>>| part.as_deref().unwrap_or_default().to_owned();
    let (agent, run) = (text(&owner.agent), text(&owner.run));
    digest::hash_parts([is_there(&owner.agent), &agent, is_there(&owner.run), &run])
}

impl SessionSettings<'_> {
    /// Returns the network of a session. `None` without confinement, because nothing could
    /// restrict the network.
    fn network(&self) -> Option<&ShellNetwork> {
        self.shell.network.as_deref().filter(|_| !self.unconfined)
    }
}

fn network_request(network: &ShellNetwork) -> NetworkRequest {
    NetworkRequest {
        hosts: network.hosts.iter().map(ToString::to_string).collect(),
        allow_private: network.allow_private.iter().map(ToString::to_string).collect(),
    }
}

fn layer_health(layer: protocol::Layer) -> LayerHealth {
    let evidence = layer
        .evidence
        .into_iter()
        .map(|layer_evidence| (layer_evidence.attempt, layer_evidence.before, layer_evidence.after));
    LayerHealth { name: layer.name, status: layer.status, reason: layer.reason, evidence: evidence.collect() }
}

/// The maximum number of sessions of one run. All runs share the sidecar's sessions, so without this limit
/// one run could use them all.
const MAX_SESSIONS_OF_A_RUN: usize = 8;
