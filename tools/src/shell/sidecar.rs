//! A sidecar as this process knows it: at most one connection, and the sessions that hang on it.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU8, Ordering},
    },
};

use portcullis_policy::{GrantedMount, ShellGrant, ShellPolicy};
use tokio::sync::Mutex;

use super::{
    connect::{Client, Connection, Source},
    failure::SidecarError,
    protocol::{self, CreateSessionRequest, HealthRequest, SessionLimits},
    session::Session,
};
use crate::call::Owner;

/// What runs commands, in sessions that keep their state. One connection is made with the first use, and made
/// anew after it broke; sessions do not survive that, commands are never repeated.
#[derive(Debug)]
pub struct Sidecar {
    source: Source,
    /// What the policy lets in from this process's environment.
    environment: HashMap<String, String>,
    connected: Mutex<Option<Arc<Connected>>>,
    /// The same, for who cannot wait until a connection is made: one that is being made has no sessions.
    last: StdMutex<Weak<Connected>>,
    standing: AtomicU8,
}

/// How a sidecar stands to the sessions that it was asked for.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It was asked for none.
    Unknown,
    /// It has made one.
    Serves,
    /// It refused the first one for what this machine is.
    Refuses,
}

/// A connection with its sessions.
#[derive(Debug)]
pub(super) struct Connected {
    connection: Connection,
    /// Made under the lock of one place each, so that two first commands share a session. A session ends when its
    /// place is removed and the last command that has it is over.
    sessions: StdMutex<HashMap<SessionKey, SessionSlot>>,
}

/// Where a session is, if there is one.
type SessionSlot = Arc<Mutex<Option<Session>>>;

/// Whose session it is, and what its run calls it. No run reaches another's, whatever its agent calls itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SessionKey {
    pub(super) owner: Owner,
    pub(super) name: String,
}

/// What a new session is made with.
#[derive(Debug)]
pub(super) struct SessionTerms<'a> {
    pub(super) shell: &'a ShellGrant,
    pub(super) mounts: &'a [GrantedMount],
    /// Variables from this process's environment.
    pub(super) environment: HashMap<String, String>,
    /// Whoever asked for no confinement does not ask for a posture.
    pub(super) unconfined: bool,
}

/// What a sidecar says of itself, with the proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarHealth {
    /// Its version.
    pub version: String,
    /// `strong`, `contained`, `minimal` or `none`.
    pub posture: String,
    /// One line, as in audit rows.
    pub summary: String,
    /// Each layer, with what was tried.
    pub layers: Vec<LayerHealth>,
    /// The user of its sessions, where that is not its own.
    pub uid: Option<u32>,
    /// Name and access of each mount.
    pub mounts: Vec<(String, String)>,
}

/// One layer of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerHealth {
    /// Its name.
    pub name: String,
    /// `enforced`, `partial`, `waived` or `missing`.
    pub status: String,
    /// What is missing, and how to get it.
    pub reason: String,
    /// What was tried, what came of it before, and what after.
    pub evidence: Vec<(String, String, String)>,
}

impl Sidecar {
    /// `shell` says which variables come in from this process's environment, which is read now.
    pub(super) fn new(source: Source, shell: Option<&ShellPolicy>) -> Self {
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

    /// Why no command can run here, where that is known: the first session that was asked for cannot be confined as the
    /// policy asks. One that fails after others were made may fail for a moment, and one of a sidecar that is not our
    /// own may be another's tomorrow.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        let refuses = self.standing.load(Ordering::Relaxed) == Standing::Refuses as u8;
        refuses
            .then_some("the shell cannot be confined here as the policy asks; `portcullis doctor` says why")
    }

    /// Takes note that a session was made.
    pub(super) fn serves(&self) {
        self.standing.store(Standing::Serves as u8, Ordering::Relaxed);
    }

    /// What the policy lets in from this process's environment.
    pub(super) fn environment(&self) -> &HashMap<String, String> {
        &self.environment
    }

    /// Asks the sidecar what it is: a session with the variables of commands is started for the answer, and ended.
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
        })
    }

    /// The connection, made if there is none.
    pub(super) async fn connected(&self) -> Result<Arc<Connected>, SidecarError> {
        let mut place = self.connected.lock().await;
        if let Some(connected) = &*place {
            return Ok(Arc::clone(connected));
        }
        let connected =
            Arc::new(Connected { connection: self.source.connect().await?, sessions: StdMutex::default() });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&connected);
        *place = Some(Arc::clone(&connected));
        Ok(connected)
    }

    /// Ends the sessions of a run. Does not wait; one whose command still runs ends after it.
    pub(crate) fn end_run(&self, owner: &Owner) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(connected) = last {
            connected.sessions().retain(|key, _| key.owner != *owner);
        }
    }

    /// Takes note of a failure: after the connection's end the next call makes a new one.
    pub(super) async fn failed(&self, connected: &Arc<Connected>, error: SidecarError) -> SidecarError {
        if error.is_about_this_machine() && matches!(self.source, Source::Own { .. }) {
            let (unknown, refuses) = (Standing::Unknown as u8, Standing::Refuses as u8);
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
            Source::Socket { path, .. } => write!(f, "the sidecar at {}", path.display()),
            Source::Own { .. } => f.write_str("a sidecar of its own"),
        }
    }
}

impl Connected {
    /// Cheap to clone; all share the connection.
    pub(super) fn client(&self) -> Client {
        self.connection.client.clone()
    }

    /// The place of a session, which may be empty; none where the run has as many as it may.
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

    /// Forgets a run's places that have no session and nobody who is about to make one: that was not made, or is lost.
    pub(super) fn forget_empty(&self, owner: &Owner) {
        self.sessions().retain(|key, place| {
            // This holds the map, so no place is taken meanwhile. A place that a call has already may be about to be filled.
            key.owner != *owner
                || Arc::strong_count(place) > 1
                || place.try_lock().map_or(true, |session| session.is_some())
        });
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, SessionSlot>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a session, and believes it no more than the policy allows.
    pub(super) async fn create(&self, terms: &SessionTerms<'_>) -> Result<Session, SidecarError> {
        let least = (!terms.unconfined).then_some(terms.shell.posture);
        let request = CreateSessionRequest {
            least_posture: least.map(|least| least.to_string()).unwrap_or_default(),
            mounts: terms
                .mounts
                .iter()
                .map(|mount| protocol::Mount {
                    name: mount.name.to_string(),
                    access: mount.access.to_string(),
                })
                .collect(),
            limits: Some(SessionLimits {
                memory_bytes: terms.shell.memory.0,
                processes: terms.shell.processes.into(),
                file_bytes: terms.shell.file_size.0,
                output_bytes: terms.shell.output.0,
                command_timeout_ms: 0,
            }),
            environment: terms.environment.clone(),
            // A grant without mounts is one without a session.
            all_mounts: false,
        };
        let created =
            self.client().create_session(request).await.map_err(SidecarError::refused)?.into_inner();
        let posture = created.posture.ok_or(SidecarError::Answer { problem: "it names no posture" })?;
        // One that is refused ends here.
        let session = Session::new(created.session_id, posture.clone(), self.client());
        if let Some(least) = least
            && !posture.posture.parse::<portcullis_types::ShellPosture>().is_ok_and(|found| found >= least)
        {
            return Err(SidecarError::Posture { found: posture.posture, least });
        }
        Ok(session)
    }
}

fn layer_health(layer: protocol::Layer) -> LayerHealth {
    let evidence = layer.evidence.into_iter().map(|one| (one.attempt, one.before, one.after));
    LayerHealth { name: layer.name, status: layer.status, reason: layer.reason, evidence: evidence.collect() }
}

/// Sessions of one run. All runs share the connection to the sidecar, and so its sessions: without this one run could
/// take them all.
const SESSIONS_OF_A_RUN: usize = 8;
