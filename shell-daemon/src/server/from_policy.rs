//! The configuration of a standalone daemon, read from the policy and the command line.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use portcullis_confine::trusted::{self, TrustError};
use portcullis_policy::{
    DEFAULT_POLICY, LoadOptions, MountName, PolicySource, RequiredLayer, ShellAbsence,
    WorkspaceSecurityPolicy,
};
use portcullis_types::{Access, SandboxTier};
use rustix::fs::{Mode, OFlags};

use super::{DaemonConfig, DaemonError, DaemonMount, DaemonNetwork, ServiceLimits, SessionLimits};
use crate::PostureChoice;

/// The paths that the command line gives.
#[derive(Debug)]
pub(super) struct CommandLinePaths {
    pub(super) workspace: PathBuf,
    pub(super) policy: Option<PathBuf>,
    pub(super) sandbox_tier: SandboxTier,
    pub(super) state: PathBuf,
    pub(super) private: Vec<PathBuf>,
}

/// Makes the configuration of a daemon.
///
/// # Errors
/// If a policy cannot be read or is invalid.
pub(super) fn config(places: &CommandLinePaths) -> Result<DaemonConfig, DaemonError> {
    let overlay_path = places.workspace.join(OVERLAY_FILE);
    let operator_path = match &places.policy {
        Some(path) => Some(path.clone()),
        None => usual_places().into_iter().find(|path| path.symlink_metadata().is_ok()),
    };
    let operator = operator_path.as_deref().map(read_trusted).transpose()?;
    let overlay = match read(&overlay_path) {
        Ok(text) => Some(text),
        Err(DaemonError::PolicyFile { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let name = operator_path.as_ref().map_or_else(|| SHIPPED.to_owned(), |path| path.display().to_string());
    let overlay_name = overlay_path.display().to_string();
    let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
        operator: PolicySource { name: &name, text: operator.as_deref().unwrap_or(DEFAULT_POLICY) },
        overlay: overlay.as_deref().map(|text| PolicySource { name: &overlay_name, text }),
        sandbox_tier: places.sandbox_tier,
    })
    .map_err(|source| DaemonError::Policy { source })?;
    let ca = policy.egress().ca.as_deref();
    let ca = ca.map(|ca| beside(ca, operator_path.as_deref())).transpose()?;
    let mut private = places.private.clone();
    private.extend(operator_path);
    private.push(overlay_path);
    let config = DaemonConfig::from_policy(&policy, places.workspace.clone(), places.state.clone(), private)?;
    Ok(config.with_certificates(ca))
}

impl DaemonConfig {
    /// Sets the file of further certificates, if sessions have a network.
    #[must_use]
    pub fn with_certificates(mut self, ca: Option<PathBuf>) -> Self {
        if let Some(network) = &mut self.network {
            network.ca = ca;
        }
        self
    }

    /// Makes the configuration from a policy's shell section, with defaults for all bounds that a policy does
    /// not set. `workspace`, `state` and `private` are as in the fields of these names. The file of further
    /// certificates is set by [`Self::with_certificates`], since its path may be relative to the policy's file.
    ///
    /// # Errors
    /// [`DaemonError::NoShell`] if the policy grants no shell, [`DaemonError::Config`] if the shell has no
    /// mounts.
    pub fn from_policy(
        policy: &WorkspaceSecurityPolicy,
        workspace: PathBuf,
        state: PathBuf,
        private: Vec<PathBuf>,
    ) -> Result<Self, DaemonError> {
        let Some(shell) = policy.shell() else {
            let remedy = policy.shell_absence().map_or("the policy has none", ShellAbsence::remedy);
            return Err(DaemonError::NoShell { remedy });
        };
        let folder_of = |name: &MountName| policy.mounts().iter().find(|spec| spec.name == *name);
        let mounts: Vec<DaemonMount> = shell
            .mounts
            .iter()
            .filter_map(|granted| {
                let folder = folder_of(&granted.name)?.folder.clone();
                Some(DaemonMount { name: granted.name.to_string(), folder, access: granted.access })
            })
            .collect();
        let home = mounts
            .iter()
            .find(|mount| mount.name == HOME)
            .or_else(|| mounts.iter().find(|mount| mount.access == Access::Write))
            .or(mounts.first());
        let home = home.ok_or_else(|| DaemonError::Config {
            setting: "mounts",
            problem: "are none: `[shell]` of the policy names none".to_owned(),
        })?;
        Ok(Self {
            home: home.name.clone(),
            state,
            workspace,
            mounts,
            private,
            posture: PostureChoice::AtLeast(shell.posture),
            environment: shell.environment.clone(),
            commands: shell.commands.clone(),
            protected: policy.protected().patterns().map(str::to_owned).collect(),
            network: policy.shell_network().map(|rules| DaemonNetwork {
                rules: rules.clone(),
                ca: None,
                proxy: policy.egress().proxy.clone(),
                landlock: policy.requires(RequiredLayer::Landlock),
                seccomp: policy.requires(RequiredLayer::Seccomp),
            }),
            session: SessionLimits {
                memory_bytes: shell.memory.0,
                processes: shell.processes.into(),
                // For all commands of a session that still have jobs, together.
                group_memory_bytes: shell.memory.0.saturating_mul(GROUP),
                group_processes: u64::from(shell.processes) * GROUP,
                file_bytes: shell.file_size.0,
                output_bytes: shell.output.0,
                command_timeout: shell.timeout,
                max_command_timeout: shell.timeout,
                ..SessionLimits::default()
            },
            service: ServiceLimits::default(),
        })
    }
}

/// A path of the policy's text, which is relative to the policy's file.
fn beside(path: &str, operator: Option<&Path>) -> Result<PathBuf, DaemonError> {
    let folder = operator.and_then(Path::parent).unwrap_or(Path::new(""));
    std::path::absolute(folder.join(path))
        .map_err(|source| DaemonError::System { operation: "find the certificates", source })
}

/// The default paths of the operator's policy. The first that exists counts.
fn usual_places() -> Vec<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?)).filter(|path| path.is_absolute());
    let own = config.or_else(|| Some(home()?.join(".config")));
    let places = [Some(PathBuf::from("/etc")), own].into_iter().flatten();
    places.map(|place| place.join("portcullis/portcullis.toml")).collect()
}

/// Reads the operator's policy, which only root and our own user may be able to change.
fn read_trusted(path: &Path) -> Result<String, DaemonError> {
    let failed = |source| DaemonError::PolicyFile { path: path.to_owned(), source };
    match trusted::open_file(path) {
        Ok(file) => read_bounded(path, file),
        Err(TrustError::Unusable { source, .. }) => Err(failed(source)),
        Err(refusal) => Err(failed(io::Error::other(refusal))),
    }
}

fn read(path: &Path) -> Result<String, DaemonError> {
    // `NONBLOCK`: a FIFO in its place must not block the start.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    let file = opened.map_err(|source| DaemonError::PolicyFile { path: path.to_owned(), source })?;
    read_bounded(path, File::from(file))
}

fn read_bounded(path: &Path, file: File) -> Result<String, DaemonError> {
    let failed = |source| DaemonError::PolicyFile { path: path.to_owned(), source };
    let mut text = String::new();
    file.take(POLICY_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > POLICY_BYTES {
        return Err(failed(io::Error::other("is larger than 1 MiB")));
    }
    Ok(text)
}

/// A session's total limits, as a multiple of a command's.
const GROUP: u64 = 4;

/// The name of the shipped policy in messages.
const SHIPPED: &str = "shipped default";

/// The preferred home mount.
const HOME: &str = "shared";

/// The file in a workspace that may restrict the operator's policy.
const OVERLAY_FILE: &str = "portcullis.toml";

/// Bytes of the largest policy.
const POLICY_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use portcullis_types::ShellPosture;

    use super::*;

    fn config(text: &str) -> Result<DaemonConfig, DaemonError> {
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "policy", text },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        })
        .unwrap();
        DaemonConfig::from_policy(&policy, "/w".into(), "/s".into(), Vec::new())
    }

    /// The shipped policy with `section` in place of its `[shell]`.
    fn with_shell(section: &str) -> Result<DaemonConfig, DaemonError> {
        let start = DEFAULT_POLICY.find("\n[shell]").unwrap();
        let end = start + 1 + DEFAULT_POLICY[start + 1..].find("\n[").unwrap();
        config(&format!("{}\n{section}\n{}", &DEFAULT_POLICY[..start], &DEFAULT_POLICY[end..]))
    }

    #[test]
    fn the_shipped_policy_gives_shared_mounts_and_never_the_vault() {
        let config = config(DEFAULT_POLICY).unwrap();
        let names: Vec<_> = config.mounts.iter().map(|mount| mount.name.as_str()).collect();
        assert_eq!((names, config.home.as_str()), (vec!["shared", "tmp"], "shared"));
        assert_eq!(config.posture, PostureChoice::AtLeast(ShellPosture::Contained));
        assert!(config.protected.iter().any(|path| path == ".git/hooks"));
        assert_eq!(
            config.session,
            SessionLimits { max_command_timeout: config.session.command_timeout, ..SessionLimits::default() }
        );
    }

    #[test]
    fn daemon_configuration_follows_the_policy() {
        let config = with_shell(
            "[shell]\nposture = \"strong\"\nmounts = { tmp = \"write\" }\ntimeout = \"5s\"\nmemory = \"64MiB\"\n\
             processes = 10\nfile_size = \"2MiB\"\noutput = \"4KiB\"\nenvironment = [\"CC\"]\ndeny = [\"sudo\"]",
        )
        .unwrap();
        assert_eq!((config.home.as_str(), config.mounts.len()), ("tmp", 1));
        assert_eq!(config.posture, PostureChoice::AtLeast(ShellPosture::Strong));
        let session = &config.session;
        assert_eq!((session.command_timeout.as_secs(), session.max_command_timeout.as_secs()), (5, 5));
        assert_eq!((session.memory_bytes, session.group_memory_bytes), (64 << 20, 256 << 20));
        assert_eq!((session.processes, session.group_processes), (10, 40));
        assert_eq!((session.file_bytes, session.output_bytes), (2 << 20, 4 << 10));
        assert!(config.environment.contains("CC") && config.environment.len() == 1);
        assert!(config.commands.judge("sudo true").is_err() && config.commands.judge("true").is_ok());
    }

    #[test]
    fn without_a_shell_or_a_mount_there_is_no_daemon() {
        for section in ["", "[shell]\nenabled = false"] {
            assert!(matches!(with_shell(section), Err(DaemonError::NoShell { .. })), "{section}");
        }
        let without_mounts = with_shell("[shell]\nenabled = true");
        assert!(matches!(without_mounts, Err(DaemonError::Config { setting: "mounts", .. })));
    }

    #[test]
    fn a_configuration_reaches_an_embedded_daemon_as_it_is() {
        let config = config(DEFAULT_POLICY).unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<DaemonConfig>(&text).unwrap(), config);
        let unknown = text.replacen('{', "{\"more\":1,", 1);
        assert!(serde_json::from_str::<DaemonConfig>(&unknown).is_err());
    }
}
