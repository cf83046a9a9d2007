//! A sidecar as this process sees it: at most one connection, and its sessions.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU8, Ordering},
    },
};

use portcullis_policy::{GrantedMount, ShellGrant, ShellNetwork, ShellPolicy};
use tokio::sync::Mutex;

use super::{
    connect::{SidecarClient, SidecarConnection, SidecarSource},
    failure::SidecarError,
    session::Session,
};
use crate::{call::Owner, run_labels::RunLabels};
use portcullis_shell_protocol as protocol;
use portcullis_shell_protocol::{CreateSessionRequest, HealthRequest, NetworkRequest, SessionLimits};

/// Runs commands in sessions that keep their state. The connection is made on first use, and again after it
/// broke. Sessions do not survive that, and commands are never repeated.
#[derive(Debug)]
pub struct Sidecar {
    source: SidecarSource,
    /// The variables that the policy passes from this process's environment.
    environment: HashMap<String, String>,
    connected: Mutex<Option<Arc<SidecarSessions>>>,
    /// The same, for callers that cannot wait for a connection; while one is being made, there are no
    /// sessions.
    last: StdMutex<Weak<SidecarSessions>>,
    standing: AtomicU8,
}

/// Whether a sidecar can make sessions, as far as is known.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SidecarState {
    /// No session was requested yet.
    Unknown,
    /// It has made a session.
    Serves,
    /// It refused the first one because this machine cannot confine it.
    Refuses,
}

/// A connection with its sessions.
#[derive(Debug)]
pub(super) struct SidecarSessions {
    connection: SidecarConnection,
    /// Each slot has a separate lock, so that two first commands share a session. A session ends when its
    /// slot is removed and its last command is over.
    sessions: StdMutex<HashMap<SessionKey, SessionSlot>>,
}

/// The slot of a session, possibly empty.
type SessionSlot = Arc<Mutex<Option<Session>>>;

/// The key of a session: its owner, and the name that the run gave it. A run never reaches another's session,
/// whatever agent name it claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SessionKey {
    pub(super) owner: Owner,
    pub(super) name: String,
}

/// The settings of a new session.
#[derive(Debug)]
pub(super) struct SessionSettings<'a> {
    pub(super) shell: &'a ShellGrant,
    pub(super) mounts: &'a [GrantedMount],
    /// Variables from this process's environment.
    pub(super) environment: HashMap<String, String>,
    /// Without confinement no posture is required.
    pub(super) unconfined: bool,
    /// The list of sessions with a network.
    pub(super) labels: &'a Arc<RunLabels>,
}

/// A sidecar's report on itself, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarHealth {
    /// The sidecar's version.
    pub version: String,
    /// `strong`, `contained`, `minimal` or `none`.
    pub posture: String,
    /// One line, as in audit rows.
    pub summary: String,
    /// Each layer, with the attempts that prove it.
    pub layers: Vec<LayerHealth>,
    /// The user of its sessions, if not the sidecar's own.
    pub uid: Option<u32>,
    /// Name and access of each mount.
    pub mounts: Vec<(String, String)>,
    /// The hosts that its sessions reach; empty without a network.
    pub hosts: Vec<String>,
    /// The reason why its sessions have no network although its policy has hosts. `None` if they have one.
    pub network_absence: Option<String>,
}

/// One layer of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerHealth {
    /// The layer's name.
    pub name: String,
    /// `enforced`, `partial`, `waived` or `missing`.
    pub status: String,
    /// The missing part, and how to get it.
    pub reason: String,
    /// Each attempt, with its outcome before and after confinement.
    pub evidence: Vec<(String, String, String)>,
}

impl Sidecar {
    /// `shell` names the variables to pass from this process's environment, which is read now.
    pub(super) fn new(source: SidecarSource, shell: Option<&ShellPolicy>) -> Self {
        let names = shell.into_iter().flat_map(|shell| &shell.environment);
        let environment =
            names.filter_map(|name| Some((name.to_string(), std::env::var(name.as_str()).ok()?)));
        let environment = environment.collect();
        Self {
            source,
            environment,
            connected: Mutex::new(None),
            last: StdMutex::default(),
            standing: AtomicU8::default(),
        }
    }

    /// The reason why no command can run here, if it is known: the first requested session could not be
    /// confined as the policy requires. A failure after earlier successes may pass, and a sidecar that is not
    /// our own may be replaced, so neither counts.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        let refuses = self.standing.load(Ordering::Relaxed) == SidecarState::Refuses as u8;
        refuses
            .then_some("the shell cannot be confined here as the policy asks; `portcullis doctor` says why")
    }

    /// Notes that a session was made.
    pub(super) fn serves(&self) {
        self.standing.store(SidecarState::Serves as u8, Ordering::Relaxed);
    }

    /// The variables that the policy passes from this process's environment.
    pub(super) fn environment(&self) -> &HashMap<String, String> {
        &self.environment
    }

    /// Asks the sidecar for its report. For that it starts a session with the variables of commands, and ends
    /// it.
    ///
    /// # Errors
    /// [`SidecarError`] if it cannot be reached or started, or refuses.
    ///
    /// # Cancellation
    /// Safe.
    pub async fn health(&self) -> Result<SidecarHealth, SidecarError> {
        let connected = self.connected().await?;
        let request = HealthRequest { environment: self.environment.clone() };
        let answer = connected.client().health(request).await;
        let answer = match answer {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Err(self.failed(&connected, SidecarError::refused(status)).await),
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
            network_absence: posture.network.map(|network| network.absence).filter(|why| !why.is_empty()),
        })
    }

    /// The connection, made if there is none.
    pub(super) async fn connected(&self) -> Result<Arc<SidecarSessions>, SidecarError> {
        let mut place = self.connected.lock().await;
        if let Some(connected) = &*place {
            return Ok(Arc::clone(connected));
        }
        let connected = Arc::new(SidecarSessions {
            connection: self.source.connect().await?,
            sessions: StdMutex::default(),
        });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&connected);
        *place = Some(Arc::clone(&connected));
        Ok(connected)
    }

    /// Ends the sessions of a run, without waiting. A session with a running command ends after it.
    pub(crate) fn end_run(&self, owner: &Owner) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(connected) = last {
            connected.sessions().retain(|key, _| key.owner != *owner);
        }
    }

    /// Notes a failure. If the connection is lost, the next call makes a new one.
    pub(super) async fn failed(&self, connected: &Arc<SidecarSessions>, error: SidecarError) -> SidecarError {
        if error.is_about_this_machine() && matches!(self.source, SidecarSource::Own { .. }) {
            let (unknown, refuses) = (SidecarState::Unknown as u8, SidecarState::Refuses as u8);
            let _known =
                self.standing.compare_exchange(unknown, refuses, Ordering::Relaxed, Ordering::Relaxed);
        }
        if error.ends_connection() {
            let mut place = self.connected.lock().await;
            if place.as_ref().is_some_and(|current| Arc::ptr_eq(current, connected)) {
                *place = None;
            }
        }
        error
    }
}

impl fmt::Display for Sidecar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            SidecarSource::Socket { path, .. } => write!(f, "the sidecar at {}", path.display()),
            SidecarSource::Own { .. } => f.write_str("a sidecar of its own"),
        }
    }
}

impl SidecarSessions {
    /// Cheap to clone; all share the connection.
    pub(super) fn client(&self) -> SidecarClient {
        self.connection.client.clone()
    }

    /// The slot of a session, possibly empty; none if the run has its maximum of sessions.
    pub(super) fn place(&self, key: &SessionKey) -> Option<SessionSlot> {
        self.forget_empty(&key.owner);
        let mut sessions = self.sessions();
        if !sessions.contains_key(key)
            && sessions.keys().filter(|other| other.owner == key.owner).count() >= SESSIONS_OF_A_RUN
        {
            return None;
        }
        Some(Arc::clone(sessions.entry(key.clone()).or_default()))
    }

    /// The names of a run's sessions.
    pub(super) fn names_of(&self, owner: &Owner) -> Vec<String> {
        let sessions = self.sessions();
        let mut names: Vec<String> =
            sessions.keys().filter(|key| key.owner == *owner).map(|key| key.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Removes a run's empty slots that no call is about to fill: the session was never made, or is lost.
    pub(super) fn forget_empty(&self, owner: &Owner) {
        self.sessions().retain(|key, place| {
            // The map is locked, so no call takes a slot meanwhile. A call that already has one may be about
            // to fill it.
            key.owner != *owner
                || Arc::strong_count(place) > 1
                || place.try_lock().map_or(true, |session| session.is_some())
        });
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, SessionSlot>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a session, and checks that its posture is what the policy requires.
    pub(super) async fn create(
        &self,
        owner: &Owner,
        settings: &SessionSettings<'_>,
    ) -> Result<Session, SidecarError> {
        let least = (!settings.unconfined).then_some(settings.shell.posture);
        let request = CreateSessionRequest {
            least_posture: least.map(|least| least.to_string()).unwrap_or_default(),
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
            // Never all: the daemon refuses an empty list, so a grant without mounts gets no session.
            all_mounts: false,
            network: settings.network().map(network_request),
            all_hosts: false,
        };
        let created =
            self.client().create_session(request).await.map_err(SidecarError::refused)?.into_inner();
        let posture = created.posture.ok_or(SidecarError::Answer { problem: "it names no posture" })?;
        // Dropping it on refusal ends the session.
        let session =
            Session::new(created.session_id, owner, posture.clone(), self.client(), settings.labels);
        if let Some(least) = least
            && !posture.posture.parse::<portcullis_types::ShellPosture>().is_ok_and(|found| found >= least)
        {
            return Err(SidecarError::Posture { found: posture.posture, least });
        }
        Ok(session)
    }
}

impl SessionSettings<'_> {
    /// The network of a session; none without confinement, where nothing bounds it.
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
    let evidence = layer.evidence.into_iter().map(|one| (one.attempt, one.before, one.after));
    LayerHealth { name: layer.name, status: layer.status, reason: layer.reason, evidence: evidence.collect() }
}

/// The most sessions of one run. All runs share the sidecar's sessions: without this limit one run could take
/// them all.
const SESSIONS_OF_A_RUN: usize = 8;
