//! Derives the specification of a new session from a client's request. A session never gets more than the sidecar
//! has. A request for a posture, mount or variable that the sidecar cannot give is refused. A limit that is
//! too high is lowered.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use portcullis_confine::{GroupLimits, PathAccess, ProcessLimits};
use portcullis_egress::TunnelShare;
use portcullis_policy::ShellNetwork;
use portcullis_types::{Access, ShellPosture};
use tonic::Status;

use super::{
    SidecarMount,
    refusal::{RefusalCode, run_failure},
    session_egress::{SessionEgress, SessionJudge, TunnelStartError},
    sidecar::SidecarServer,
};
use crate::{
    PostureChoice, SessionMount, SessionNetwork, SessionSpec,
    spec::{check_command, check_workdir},
};
use portcullis_shell_protocol::{CreateSessionRequest, Mount, SessionLimits};

/// A client's request after the checks.
#[derive(Debug)]
pub(super) struct CheckedRequest {
    pub(super) spec: SessionSpec,
    pub(super) mounts: Vec<Mount>,
    pub(super) limits: SessionLimits,
    pub(super) mount_paths: Vec<MountRealPath>,
    /// The networks that must all permit a connection. `None` for a session without a network.
    pub(super) networks: Option<Vec<ShellNetwork>>,
}

/// The network access of a session, once the session has started.
#[derive(Debug)]
pub(super) struct SessionAccess {
    pub(super) client: SessionEgress,
    pub(super) judge: Arc<SessionJudge>,
    /// The permits for tunnels that the session shares with its owner's other sessions.
    pub(super) tunnel_share: TunnelShare,
    /// The hosts of the client's request, for the session's report.
    pub(super) hosts: Vec<String>,
}

/// The reason why a session has no network.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionNetworkError {
    #[error("the sidecar's policy has no `hosts` in `[shell]`")]
    NoHosts,
    #[error(transparent)]
    Client(#[from] TunnelStartError),
    /// The session's process gave this reason.
    #[error("{0}")]
    Session(String),
    #[error("the session did not create a listener")]
    NoListener,
    #[error("the session's listener cannot be set up ({0})")]
    Listener(std::io::Error),
}

/// The real path of a mount.
#[derive(Clone, Debug)]
pub(super) struct MountRealPath {
    name: String,
    path: PathBuf,
}

/// The maximum length of the name of a session's owner, in bytes.
const MAX_OWNER_BYTES: usize = 256;

/// A request for all mounts and hosts of the sidecar.
pub(super) fn request_for_all() -> CreateSessionRequest {
    CreateSessionRequest { all_mounts: true, all_hosts: true, ..CreateSessionRequest::default() }
}

impl CheckedRequest {
    /// Starts the client of a session with a network, and adds the session's network settings. `Err` has the
    /// reason why the session starts without a network.
    pub(super) async fn open_network(
        &mut self,
        sidecar: &SidecarServer,
        share: TunnelShare,
    ) -> Option<Result<SessionAccess, SessionNetworkError>> {
        let networks = self.networks.take()?;
        let Some(clients) = &sidecar.clients else {
            return Some(Err(SessionNetworkError::NoHosts));
        };
        let client = match clients.get().await {
            Ok(client) => client,
            Err(error) => return Some(Err(error.into())),
        };
        self.spec.network = Some(SessionNetwork { certificates: Arc::clone(&client.certificates) });
        let requested_hosts = networks.last().into_iter().flat_map(|network| &network.hosts);
        let hosts = requested_hosts.map(ToString::to_string).collect();
        Some(Ok(SessionAccess {
            client,
            judge: Arc::new(SessionJudge::new(networks)),
            tunnel_share: share,
            hosts,
        }))
    }
}

/// Checks a request and derives the session's specification.
///
/// # Errors
/// `posture`, `mounts`, `environment` or `invalid`, with the reason.
pub(super) fn check_request(
    sidecar: &SidecarServer,
    request: &CreateSessionRequest,
) -> Result<CheckedRequest, Status> {
    let posture = stricter_posture(sidecar.config.posture, &request.least_posture)?;
    let mounts = match (request.all_mounts, request.mounts.as_slice()) {
        (true, []) => sidecar.config.mounts.clone(),
        (true, _) => {
            return Err(RefusalCode::Invalid.status("a session has either all mounts or those of a list"));
        }
        // An empty list means no mounts. A client that forgets the list is granted nothing.
        (false, requested) => granted_mounts(&sidecar.config.mounts, requested)?,
    };
    if request.owner.len() > MAX_OWNER_BYTES {
        return Err(RefusalCode::Invalid.status("the name of the owner is too long"));
    }
    let networks = requested_networks(sidecar, request)?;
    let limits = lowered_limits(sidecar, request.limits.as_ref());
    let home = mounts.iter().find(|mount| mount.name == sidecar.config.home).or(mounts.first());
    let home = home.ok_or_else(|| RefusalCode::Mounts.status("a session needs a mount"))?.name.clone();
    let mut session_mounts = Vec::with_capacity(mounts.len());
    for mount in &mounts {
        session_mounts.push(SessionMount {
            name: mount.name.clone(),
            path: sidecar.mount_path(&mount.name)?,
            access: match mount.access {
                Access::Read => PathAccess::Read,
                Access::Write => PathAccess::Write,
            },
        });
    }
    let mount_paths = session_mounts
        .iter()
        .map(|mount| MountRealPath { name: mount.name.clone(), path: mount.path.clone() });
    Ok(CheckedRequest {
        mount_paths: mount_paths.collect(),
        networks,
        mounts: mount_messages(&mounts),
        limits,
        spec: SessionSpec {
            launcher: sidecar.launcher.clone(),
            mounts: session_mounts,
            home,
            toolchain: sidecar.config.toolchain.clone(),
            environment: session_environment(sidecar, request)?,
            limits: ProcessLimits {
                memory_bytes: limits.memory_bytes,
                file_bytes: limits.file_bytes,
                ..sidecar.config.session.process_limits()
            },
            group: Some(GroupLimits {
                memory_bytes: sidecar.config.session.group_memory_bytes,
                processes: sidecar.config.session.group_processes,
                cpu_percent: None,
            }),
            canary: sidecar.canary.clone(),
            posture,
            waived: Vec::new(),
            protect: sidecar.protect.clone(),
            hide: sidecar.hide.clone(),
            watch_changes: mounts.iter().any(SidecarMount::keeps_changes),
            network: None,
        },
    })
}

/// The sidecar's own bounds of a session.
pub(super) fn configured_limits(sidecar: &SidecarServer) -> SessionLimits {
    let configured = &sidecar.config.session;
    SessionLimits {
        memory_bytes: configured.memory_bytes,
        processes: configured.processes,
        file_bytes: configured.file_bytes,
        output_bytes: configured.output_bytes,
        command_timeout_ms: u64::try_from(configured.command_timeout.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Mounts as protocol messages. The client does not learn which mounts keep changes for an undo.
pub(super) fn mount_messages(mounts: &[SidecarMount]) -> Vec<Mount> {
    let message =
        |mount: &SidecarMount| Mount { name: mount.name.clone(), access: mount.access.as_str().to_owned() };
    mounts.iter().map(message).collect()
}

/// Translates a command's working directory from the client's paths to the session's paths. `None` means the
/// directory where the last command ended. In a session's own file tree, the mounts have the client's paths.
///
/// # Errors
/// `invalid` if the path is too long, contains a NUL, or is not below one of the session's mounts.
pub(super) fn translate_workdir(
    mount_paths: &[MountRealPath],
    has_own_tree: bool,
    workdir: &str,
) -> Result<Option<String>, Status> {
    if workdir.is_empty() {
        return Ok(None);
    }
    check_workdir(workdir).map_err(|error| run_failure(&error))?;
    let refuse =
        || RefusalCode::Invalid.status("the working directory is not below one of the session's mounts");
    let mut parts = workdir.strip_prefix('/').ok_or_else(refuse)?.split('/').filter(|part| !part.is_empty());
    let name = parts.next().ok_or_else(refuse)?;
    let mount_path = mount_paths.iter().find(|mount_path| mount_path.name == name).ok_or_else(refuse)?;
    let mut path = if has_own_tree { Path::new("/").join(name) } else { mount_path.path.clone() };
    for part in parts {
        if part == ".." {
            return Err(refuse());
        }
        path.push(part);
    }
    path.into_os_string().into_string().map(Some).map_err(|_path| refuse())
}

/// Checks that a shell can run a command's text.
///
/// # Errors
/// `invalid` if the text is too long or contains a NUL.
pub(super) fn check_command_text(text: String) -> Result<String, Status> {
    check_command(&text).map_err(|error| run_failure(&error))?;
    Ok(text)
}

/// The stricter of the sidecar's posture and the requested one.
fn stricter_posture(configured: PostureChoice, requested: &str) -> Result<PostureChoice, Status> {
    if requested.is_empty() {
        return Ok(configured);
    }
    let requested = requested
        .parse::<ShellPosture>()
        .map_err(|unknown| RefusalCode::Invalid.status(unknown.to_string()))?;
    match configured {
        PostureChoice::AtLeast(least) => Ok(PostureChoice::AtLeast(least.max(requested))),
        PostureChoice::Exactly(level) if level >= requested => Ok(configured),
        PostureChoice::Exactly(level) => Err(RefusalCode::Posture
            .status(format!("sessions of this sidecar are `{level}`, by its operator's choice"))),
    }
}

/// The sidecar's network and the requested network. Both must permit a connection.
fn requested_networks(
    sidecar: &SidecarServer,
    request: &CreateSessionRequest,
) -> Result<Option<Vec<ShellNetwork>>, Status> {
    let configured = sidecar.config.network.as_ref().map(|network| network.rules.clone());
    match (request.all_hosts, &request.network) {
        (false, None) => Ok(None),
        (true, None) => Ok(configured.map(|configured| vec![configured])),
        (true, Some(_)) => {
            Err(RefusalCode::Invalid.status("a session has either all hosts or those of a list"))
        }
        (false, Some(requested)) => {
            if requested.hosts.len() + requested.allow_private.len() > MAX_RULES {
                return Err(RefusalCode::Invalid.status(format!("more than {MAX_RULES} rules of hosts")));
            }
            let requested = ShellNetwork {
                hosts: parse_all(&requested.hosts)?,
                allow_private: parse_all(&requested.allow_private)?,
            };
            Ok(Some(configured.into_iter().chain([requested]).collect()))
        }
    }
}

fn parse_all<T: FromStr<Err: std::fmt::Display> + Ord>(texts: &[String]) -> Result<BTreeSet<T>, Status> {
    let parsed = texts.iter().map(|text| text.parse());
    parsed.collect::<Result<_, T::Err>>().map_err(|error| RefusalCode::Invalid.status(error.to_string()))
}

fn granted_mounts(configured: &[SidecarMount], requested: &[Mount]) -> Result<Vec<SidecarMount>, Status> {
    let mut mounts: Vec<SidecarMount> = Vec::new();
    for mount in requested {
        let refuse = |problem| RefusalCode::Mounts.status(format!("the mount `{}` {problem}", mount.name));
        let configured_mount = configured.iter().find(|configured| configured.name == mount.name);
        let configured_mount = configured_mount.ok_or_else(|| refuse("is not one of this sidecar's"))?;
        let access = match mount.access.as_str() {
            "read" => Access::Read,
            "write" => Access::Write,
            _ => return Err(refuse("is neither requested to `read` nor to `write`")),
        };
        if access > configured_mount.access {
            return Err(refuse("cannot be written to through this sidecar"));
        }
        if mounts.iter().any(|other| other.name == mount.name) {
            return Err(refuse("is requested twice"));
        }
        mounts.push(SidecarMount { access, ..configured_mount.clone() });
    }
    Ok(mounts)
}

/// The lower of each requested limit and the sidecar's limit. A request of 0 means the sidecar's limit. A timeout is
/// bounded only by the sidecar's longest timeout.
fn lowered_limits(sidecar: &SidecarServer, requested: Option<&SessionLimits>) -> SessionLimits {
    let configured = configured_limits(sidecar);
    let Some(requested) = requested else { return configured };
    let lower_limit =
        |requested: u64, configured: u64| if requested == 0 { configured } else { requested.min(configured) };
    let max_timeout_ms =
        u64::try_from(sidecar.config.session.max_command_timeout.as_millis()).unwrap_or(u64::MAX);
    SessionLimits {
        memory_bytes: lower_limit(requested.memory_bytes, configured.memory_bytes),
        processes: lower_limit(requested.processes, configured.processes),
        file_bytes: lower_limit(requested.file_bytes, configured.file_bytes),
        output_bytes: lower_limit(requested.output_bytes, configured.output_bytes),
        command_timeout_ms: match requested.command_timeout_ms {
            0 => configured.command_timeout_ms,
            requested => requested.min(max_timeout_ms),
        },
    }
}

fn session_environment(
    sidecar: &SidecarServer,
    request: &CreateSessionRequest,
) -> Result<Vec<(String, String)>, Status> {
    let mut bytes = 0;
    for (name, value) in &request.environment {
        if !sidecar.config.environment.contains(name.as_str()) {
            let name: String = name.chars().take(64).collect();
            return Err(
                RefusalCode::Environment.status(format!("this sidecar does not let clients set `{name}`"))
            );
        }
        if value.contains('\0') {
            return Err(RefusalCode::Invalid.status(format!("the value of `{name}` holds a NUL")));
        }
        bytes += name.len() + value.len();
        if bytes > MAX_ENVIRONMENT_BYTES {
            return Err(RefusalCode::Invalid.status("the variables are longer than 16 KiB"));
        }
    }
    let mut environment: Vec<_> = request.environment.clone().into_iter().collect();
    environment.sort();
    // Add these last, so that no client changes the variables of the operator's toolchain.
    environment.extend(sidecar.config.toolchain.variables.iter().cloned());
    Ok(environment)
}

/// The maximum number of rules in one request. A policy has at most as many in each of its two lists.
const MAX_RULES: usize = 512;

/// The maximum number of bytes of all variables of one session. They are sent in one message with the rest of the
/// setup.
const MAX_ENVIRONMENT_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_WORKDIR_BYTES;

    /// Translates a working directory for a session with the mount `shared`, and returns the path or the
    /// refusal's text.
    fn translated(workdir: &str) -> Result<String, String> {
        let mount_paths = [MountRealPath { name: "shared".to_owned(), path: PathBuf::from("/srv/files") }];
        let path = translate_workdir(&mount_paths, false, workdir);
        path.map(Option::unwrap_or_default).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn a_working_directory_is_translated_or_refused_with_a_reason() {
        assert_eq!(translated(""), Ok(String::new()));
        assert_eq!(translated("/shared"), Ok("/srv/files".to_owned()));
        assert_eq!(translated("/shared//a/b/"), Ok("/srv/files/a/b".to_owned()));
        let too_long = format!("/shared/{}", "a".repeat(MAX_WORKDIR_BYTES));
        for (workdir, reason) in [
            ("shared", "not below one of the session's mounts"),
            ("/other", "not below one of the session's mounts"),
            ("/shared/../etc", "not below one of the session's mounts"),
            ("/shared/a\0b", "the working directory contains a NUL"),
            (too_long.as_str(), "the working directory is longer than 4,095 bytes"),
        ] {
            let refusal = translated(workdir).expect_err(workdir);
            assert!(refusal.contains(reason), "{refusal}");
        }
    }
}
