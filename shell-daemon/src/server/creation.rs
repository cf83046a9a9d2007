//! The specification of a new session. A session never gets more than the daemon has: a posture, mount or
//! variable beyond that is refused, and a limit is lowered.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use portcullis_confine::{GroupLimits, PathAccess, ProcessLimits};
use portcullis_policy::ShellNetwork;
use portcullis_types::{Access, ShellPosture};
use tonic::Status;

use super::{
    DaemonMount,
    daemon::Daemon,
    refusal::RefusalCode,
    session_egress::{SessionEgress, SessionJudge},
};
use crate::{PostureChoice, SessionMount, SessionNetwork, SessionSpec, limits::COMMAND_BYTES};
use portcullis_shell_protocol::{CreateSessionRequest, Mount, SessionLimits};

/// A client's request after the checks.
#[derive(Debug)]
pub(super) struct CheckedRequest {
    pub(super) spec: SessionSpec,
    pub(super) mounts: Vec<Mount>,
    pub(super) limits: SessionLimits,
    pub(super) places: Vec<MountPath>,
    /// The networks whose rules must all pass. `None` for a session without a network.
    pub(super) networks: Option<Vec<ShellNetwork>>,
}

/// The network access of a session, once the session has started.
#[derive(Debug)]
pub(super) struct SessionAccess {
    pub(super) client: SessionEgress,
    pub(super) judge: Arc<SessionJudge>,
    /// The hosts of the client's request, for its report.
    pub(super) hosts: Vec<String>,
}

/// The real path of a mount.
#[derive(Clone, Debug)]
pub(super) struct MountPath {
    name: String,
    path: PathBuf,
}

/// A request for all mounts and hosts of the daemon.
pub(super) fn request_for_all() -> CreateSessionRequest {
    CreateSessionRequest { all_mounts: true, all_hosts: true, ..CreateSessionRequest::default() }
}

impl CheckedRequest {
    /// Starts the client of a session with a network, and adds the session's network settings. `Err` has the
    /// reason why the session starts without a network.
    pub(super) async fn open_network(&mut self, daemon: &Daemon) -> Option<Result<SessionAccess, String>> {
        let networks = self.networks.take()?;
        let Some(clients) = &daemon.clients else {
            return Some(Err("the sidecar's policy has no `hosts` in `[shell]`".to_owned()));
        };
        let client = match clients.get().await {
            Ok(client) => client,
            Err(reason) => return Some(Err(reason)),
        };
        self.spec.network = Some(SessionNetwork { certificates: Arc::clone(&client.certificates) });
        let asked = networks.last().into_iter().flat_map(|network| &network.hosts);
        let hosts = asked.map(ToString::to_string).collect();
        Some(Ok(SessionAccess { client, judge: Arc::new(SessionJudge::new(networks)), hosts }))
    }
}

/// Checks a request and derives the session's specification.
///
/// # Errors
/// `posture`, `mounts`, `environment` or `invalid`, with the reason.
pub(super) fn check_request(
    daemon: &Daemon,
    request: &CreateSessionRequest,
) -> Result<CheckedRequest, Status> {
    let posture = posture(daemon.config.posture, &request.least_posture)?;
    let mounts = match (request.all_mounts, request.mounts.as_slice()) {
        (true, []) => daemon.config.mounts.clone(),
        (true, _) => {
            return Err(RefusalCode::Invalid.because("a session has either all mounts or those of a list"));
        }
        // An empty list means no mounts, not all of them, so that a mistake grants nothing.
        (false, requested) => mounts(&daemon.config.mounts, requested)?,
    };
    let networks = networks(daemon, request)?;
    let limits = limits(daemon, request.limits.as_ref());
    let home = mounts.iter().find(|mount| mount.name == daemon.config.home).or(mounts.first());
    let home = home.ok_or_else(|| RefusalCode::Mounts.because("a session needs a mount"))?.name.clone();
    let mut session_mounts = Vec::with_capacity(mounts.len());
    for mount in &mounts {
        session_mounts.push(SessionMount {
            name: mount.name.clone(),
            path: daemon.place_of(&mount.name)?,
            access: match mount.access {
                Access::Read => PathAccess::Read,
                Access::Write => PathAccess::Write,
            },
        });
    }
    let places =
        session_mounts.iter().map(|mount| MountPath { name: mount.name.clone(), path: mount.path.clone() });
    Ok(CheckedRequest {
        places: places.collect(),
        networks,
        mounts: messages(&mounts),
        limits,
        spec: SessionSpec {
            launcher: daemon.launcher.clone(),
            mounts: session_mounts,
            home,
            environment: environment(daemon, request)?,
            limits: ProcessLimits {
                memory_bytes: limits.memory_bytes,
                file_bytes: limits.file_bytes,
                ..daemon.config.session.of_each_process()
            },
            group: Some(GroupLimits {
                memory_bytes: daemon.config.session.group_memory_bytes,
                processes: daemon.config.session.group_processes,
                cpu_percent: None,
            }),
            canary: daemon.canary.clone(),
            posture,
            waived: Vec::new(),
            protect: daemon.protect.clone(),
            network: None,
        },
    })
}

/// The daemon's own bounds of a session.
pub(super) fn own_limits(daemon: &Daemon) -> SessionLimits {
    let own = &daemon.config.session;
    SessionLimits {
        memory_bytes: own.memory_bytes,
        processes: own.processes,
        file_bytes: own.file_bytes,
        output_bytes: own.output_bytes,
        command_timeout_ms: u64::try_from(own.command_timeout.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Mounts as protocol messages.
pub(super) fn messages(mounts: &[DaemonMount]) -> Vec<Mount> {
    let message =
        |mount: &DaemonMount| Mount { name: mount.name.clone(), access: mount.access.as_str().to_owned() };
    mounts.iter().map(message).collect()
}

/// Translates a command's working directory to the session's paths. `None` means the directory where the last
/// command ended. In a session's own file tree the mounts have the clients' names.
///
/// # Errors
/// `invalid` if the directory is not below one of the session's mounts.
pub(super) fn workdir(
    places: &[MountPath],
    has_own_tree: bool,
    workdir: &str,
) -> Result<Option<String>, Status> {
    if workdir.is_empty() {
        return Ok(None);
    }
    command(workdir.to_owned())?;
    let refuse =
        || RefusalCode::Invalid.because("the working directory is not below one of the session's mounts");
    let mut parts = workdir.strip_prefix('/').ok_or_else(refuse)?.split('/').filter(|part| !part.is_empty());
    let name = parts.next().ok_or_else(refuse)?;
    let place = places.iter().find(|place| place.name == name).ok_or_else(refuse)?;
    let mut path = if has_own_tree { Path::new("/").join(name) } else { place.path.clone() };
    for part in parts {
        if part == ".." {
            return Err(refuse());
        }
        path.push(part);
    }
    path.into_os_string().into_string().map(Some).map_err(|_path| refuse())
}

/// Checks that a shell can take a command's text.
///
/// # Errors
/// `invalid` if the text is too long or has a NUL.
pub(super) fn command(text: String) -> Result<String, Status> {
    if text.len() > COMMAND_BYTES {
        return Err(RefusalCode::Invalid.because("the command is longer than 1 MiB"));
    }
    if text.contains('\0') {
        return Err(RefusalCode::Invalid.because("the command holds a NUL, which no shell can read"));
    }
    Ok(text)
}

/// The stricter of the daemon's posture and the requested one.
fn posture(own: PostureChoice, requested: &str) -> Result<PostureChoice, Status> {
    if requested.is_empty() {
        return Ok(own);
    }
    let requested = requested.parse::<ShellPosture>().map_err(|text| RefusalCode::Invalid.because(text))?;
    match own {
        PostureChoice::AtLeast(least) => Ok(PostureChoice::AtLeast(least.max(requested))),
        PostureChoice::Exactly(level) if level >= requested => Ok(own),
        PostureChoice::Exactly(level) => Err(RefusalCode::Posture
            .because(format!("sessions of this daemon are `{level}`, by its operator's choice"))),
    }
}

/// The daemon's network and the requested one. A connection must pass both.
fn networks(daemon: &Daemon, request: &CreateSessionRequest) -> Result<Option<Vec<ShellNetwork>>, Status> {
    let own = daemon.config.network.as_ref().map(|network| network.rules.clone());
    match (request.all_hosts, &request.network) {
        (false, None) => Ok(None),
        (true, None) => Ok(own.map(|own| vec![own])),
        (true, Some(_)) => {
            Err(RefusalCode::Invalid.because("a session has either all hosts or those of a list"))
        }
        (false, Some(requested)) => {
            if requested.hosts.len() + requested.allow_private.len() > RULES {
                return Err(RefusalCode::Invalid.because(format!("more than {RULES} rules of hosts")));
            }
            let requested = ShellNetwork {
                hosts: parsed(&requested.hosts)?,
                allow_private: parsed(&requested.allow_private)?,
            };
            Ok(Some(own.into_iter().chain([requested]).collect()))
        }
    }
}

fn parsed<T: FromStr<Err: std::fmt::Display> + Ord>(texts: &[String]) -> Result<BTreeSet<T>, Status> {
    let parsed = texts.iter().map(|text| text.parse());
    parsed.collect::<Result<_, T::Err>>().map_err(|error| RefusalCode::Invalid.because(error.to_string()))
}

fn mounts(own: &[DaemonMount], requested: &[Mount]) -> Result<Vec<DaemonMount>, Status> {
    let mut mounts: Vec<DaemonMount> = Vec::new();
    for mount in requested {
        let refuse = |problem| RefusalCode::Mounts.because(format!("the mount `{}` {problem}", mount.name));
        let found = own.iter().find(|own| own.name == mount.name);
        let found = found.ok_or_else(|| refuse("is none of this daemon's"))?;
        let access = match mount.access.as_str() {
            "read" => Access::Read,
            "write" => Access::Write,
            _ => return Err(refuse("is neither requested to `read` nor to `write`")),
        };
        if access > found.access {
            return Err(refuse("cannot be written to through this daemon"));
        }
        if mounts.iter().any(|other| other.name == mount.name) {
            return Err(refuse("is requested twice"));
        }
        mounts.push(DaemonMount { access, ..found.clone() });
    }
    Ok(mounts)
}

/// The lower of each requested limit and the daemon's. 0 means the daemon's. A timeout is bounded only by the
/// daemon's maximum.
fn limits(daemon: &Daemon, requested: Option<&SessionLimits>) -> SessionLimits {
    let own = own_limits(daemon);
    let Some(requested) = requested else { return own };
    let lower = |requested: u64, own: u64| if requested == 0 { own } else { requested.min(own) };
    let most = u64::try_from(daemon.config.session.max_command_timeout.as_millis()).unwrap_or(u64::MAX);
    SessionLimits {
        memory_bytes: lower(requested.memory_bytes, own.memory_bytes),
        processes: lower(requested.processes, own.processes),
        file_bytes: lower(requested.file_bytes, own.file_bytes),
        output_bytes: lower(requested.output_bytes, own.output_bytes),
        command_timeout_ms: match requested.command_timeout_ms {
            0 => own.command_timeout_ms,
            requested => requested.min(most),
        },
    }
}

fn environment(daemon: &Daemon, request: &CreateSessionRequest) -> Result<Vec<(String, String)>, Status> {
    let mut bytes = 0;
    for (name, value) in &request.environment {
        if !daemon.config.environment.contains(name.as_str()) {
            let name: String = name.chars().take(64).collect();
            return Err(
                RefusalCode::Environment.because(format!("this daemon does not let clients set `{name}`"))
            );
        }
        if value.contains('\0') {
            return Err(RefusalCode::Invalid.because(format!("the value of `{name}` holds a NUL")));
        }
        bytes += name.len() + value.len();
        if bytes > ENVIRONMENT_BYTES {
            return Err(RefusalCode::Invalid.because("the variables are longer than 16 KiB"));
        }
    }
    let mut environment: Vec<_> = request.environment.clone().into_iter().collect();
    environment.sort();
    Ok(environment)
}

/// Rules of one request. A policy has at most as many in each of its two lists.
const RULES: usize = 512;

/// Bytes of all variables of one session. They are sent in one message with the rest of the setup.
const ENVIRONMENT_BYTES: usize = 16 << 10;
