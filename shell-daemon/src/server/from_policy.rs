//! The configuration of a standalone sidecar, read from the policy and the command line.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use portcullis_confine::{
    bounded::{self, FinalSymlink},
    trusted::{self, TrustError},
    user_folders,
};
use portcullis_policy::{
    DEFAULT_POLICY, HostPath, LoadOptions, MAX_POLICY_FILE_BYTES, MountName, OVERLAY_FILE, PolicySource,
    RequiredLayer, SHIPPED_POLICY_NAME, ShellAbsence, Toolchain, WorkspaceSecurityPolicy,
    default_policy_paths, project_of,
};
use portcullis_types::{Access, SandboxTier};

use super::{
    ServiceLimits, SessionConfig, SidecarMount, SidecarNetwork, SidecarServerConfig, SidecarServerError,
};
use crate::{PostureChoice, SessionToolchain};

/// The paths that the command line gives.
#[derive(Debug)]
pub(super) struct CommandLinePaths {
    pub(super) workspace: PathBuf,
    pub(super) policy: Option<PathBuf>,
    pub(super) sandbox_tier: SandboxTier,
    pub(super) state: PathBuf,
    pub(super) private_paths: Vec<PathBuf>,
}

/// Makes the configuration of a sidecar.
///
/// # Errors
/// [`SidecarServerError::PolicyFile`] if a policy cannot be read, [`SidecarServerError::Policy`] if a policy is invalid,
/// and the errors of [`SidecarServerConfig::from_policy`].
pub(super) fn config(paths: &CommandLinePaths) -> Result<SidecarServerConfig, SidecarServerError> {
    let (operator_path, operator) = operator_policy(paths.policy.as_deref())?.unzip();
    let project = operator.as_deref().and_then(project_of).map(PathBuf::from);
    let overlay_path = project.as_ref().unwrap_or(&paths.workspace).join(OVERLAY_FILE);
    let overlay = match read(&overlay_path) {
        Ok(text) => Some(text),
        Err(SidecarServerError::PolicyFile { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            None
        }
        Err(error) => return Err(error),
    };
    let name = operator_path
        .as_ref()
        .map_or_else(|| SHIPPED_POLICY_NAME.to_owned(), |path| path.display().to_string());
    let overlay_name = overlay_path.display().to_string();
    let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
        operator: PolicySource { name: &name, text: operator.as_deref().unwrap_or(DEFAULT_POLICY) },
        overlay: overlay.as_deref().map(|text| PolicySource { name: &overlay_name, text }),
        sandbox_tier: paths.sandbox_tier,
    })
    .map_err(|source| SidecarServerError::Policy { source })?;
    let ca = policy.egress().ca.as_deref();
    let ca = ca.map(|ca| path_beside_policy(ca, operator_path.as_deref())).transpose()?;
    let mut private = paths.private_paths.clone();
    private.extend(operator_path);
    // A project's folder is a mount, and the overlay in it is a protected path.
    if project.is_none() {
        private.push(overlay_path);
    }
    let mut config =
        SidecarServerConfig::from_policy(&policy, paths.workspace.clone(), paths.state.clone(), private)?;
    // Switch undo off, because this sidecar's state folder is not its clients' state folder. Clients refuse
    // commands in mounts with undo.
    config.mounts.iter_mut().for_each(|mount| mount.has_undo = false);
    Ok(config.with_certificates(ca))
}

impl SidecarServerConfig {
    /// Sets the file of additional trusted certificates, if sessions have a network.
    #[must_use]
    pub fn with_certificates(mut self, ca: Option<PathBuf>) -> Self {
        if let Some(network) = &mut self.network {
            network.ca = ca;
        }
        self
    }

    /// Makes the configuration from a policy's shell section, with defaults for all bounds that a policy does not
    /// set. `workspace`, `state` and `private` become the fields of these names. [`Self::with_certificates`] sets the
    /// file of additional trusted certificates, because the file's path may be relative to the policy's file.
    ///
    /// # Errors
    /// [`SidecarServerError::NoShell`] if the policy grants no shell, [`SidecarServerError::Config`] if the shell has no
    /// mounts.
    pub fn from_policy(
        policy: &WorkspaceSecurityPolicy,
        workspace: PathBuf,
        state: PathBuf,
        private: Vec<PathBuf>,
    ) -> Result<Self, SidecarServerError> {
        let Some(shell) = policy.shell() else {
            let remedy = policy.shell_absence().map_or("the policy has none", ShellAbsence::remedy);
            return Err(SidecarServerError::NoShell { remedy });
        };
        let spec_of = |name: &MountName| policy.mounts().iter().find(|spec| spec.name == *name);
        let mounts: Vec<SidecarMount> = shell
            .mounts
            .iter()
            .filter_map(|granted| {
                let spec = spec_of(&granted.name)?;
                Some(SidecarMount {
                    name: granted.name.to_string(),
                    folder: spec.folder.clone(),
                    access: granted.access,
                    has_undo: spec.has_undo,
                })
            })
            .collect();
        let home = mounts
            .iter()
            .find(|mount| mount.name == policy.home().as_str())
            .or_else(|| mounts.iter().find(|mount| mount.access == Access::Write))
            .or(mounts.first());
        let home = home.ok_or_else(|| SidecarServerError::Config {
            setting: "mounts",
            problem: "are missing: `[shell]` of the policy names none".to_owned(),
        })?;
        let toolchain = toolchain(&shell.toolchain, &state)?;
        Ok(Self {
            home: home.name.clone(),
            state,
            workspace,
            mounts,
            private,
            posture: PostureChoice::AtLeast(shell.posture),
            toolchain,
            environment: shell.environment.clone(),
            commands: shell.commands.clone(),
            protected: policy.protected().patterns().map(str::to_owned).collect(),
            hidden: policy.hidden().patterns().map(str::to_owned).collect(),
            network: policy.shell_network().map(|rules| SidecarNetwork {
                rules: rules.clone(),
                ca: None,
                proxy: policy.egress().proxy.clone(),
                landlock: policy.requires(RequiredLayer::Landlock),
                seccomp: policy.requires(RequiredLayer::Seccomp),
            }),
            session: SessionConfig {
                memory_bytes: shell.memory.0,
                processes: shell.processes.into(),
                // For all commands of a session together, as long as they have jobs.
                group_memory_bytes: shell.memory.0.saturating_mul(COMMANDS_PER_SESSION),
                group_processes: u64::from(shell.processes) * COMMANDS_PER_SESSION,
                file_bytes: shell.file_size.0,
                output_bytes: shell.output.0,
                command_timeout: shell.timeout,
                max_command_timeout: shell.timeout,
                ..SessionConfig::default()
            },
            service: ServiceLimits::default(),
        })
    }
}

/// The operator's toolchain, with the paths below the home resolved. The copies of caches are in the state
/// folder.
fn toolchain(toolchain: &Toolchain, state: &Path) -> Result<SessionToolchain, SidecarServerError> {
    // The home of the user who runs Portcullis.
    let home = user_folders::absolute_variable("HOME");
    let resolve = |setting, paths: &mut dyn Iterator<Item = &HostPath>| {
        let resolved = paths.map(|path| {
            path.resolve(home.as_deref()).ok_or_else(|| SidecarServerError::Config {
                setting,
                problem: format!("has `{path}`, and there is no home: `HOME` is not set"),
            })
        });
        resolved.collect::<Result<Vec<_>, _>>()
    };
    Ok(SessionToolchain {
        read: resolve("read", &mut toolchain.read.iter())?,
        caches: resolve("caches", &mut toolchain.caches.iter())?,
        copies: state.join("caches"),
        path: resolve("path", &mut toolchain.path.iter())?,
        variables: toolchain.resolved_variables(home.as_deref()).collect(),
        home,
    })
}

/// Makes a path of the policy absolute. The path is relative to the folder of the policy's file.
fn path_beside_policy(path: &str, operator: Option<&Path>) -> Result<PathBuf, SidecarServerError> {
    let folder = operator.and_then(Path::parent).unwrap_or(Path::new(""));
    std::path::absolute(folder.join(path))
        .map_err(|source| SidecarServerError::System { operation: "find the certificates", source })
}

/// Returns the operator's policy and its path: the given file, or the first default file that exists. `None`
/// if there is none. Only root and the sidecar's own user may be able to change the file.
fn operator_policy(given: Option<&Path>) -> Result<Option<(PathBuf, String)>, SidecarServerError> {
    let opened = match given {
        Some(path) => match trusted::open_file(path) {
            Ok(file) => Ok(Some((path.to_owned(), file))),
            Err(refusal) => Err((path.to_owned(), refusal)),
        },
        None => trusted::open_first(default_policy_paths(user_folders::config()), |path, doubt| {
            tracing::warn!(
                file = %path.display(), cause = doubt as &dyn std::error::Error,
                "there is no policy file, but another user could create one here or may have removed one"
            );
        }),
    };
    let opened = opened.map_err(|(path, refusal)| match refusal {
        TrustError::Unusable { source, .. } => SidecarServerError::PolicyFile { path, source },
        refusal => SidecarServerError::PolicyFile { path, source: io::Error::other(refusal) },
    })?;
    let read = |(path, file): (PathBuf, File)| Ok((path.clone(), read_text(&path, file)?));
    opened.map(read).transpose()
}

fn read(path: &Path) -> Result<String, SidecarServerError> {
    let file = bounded::open_regular(path, FinalSymlink::Follow)
        .map_err(|source| SidecarServerError::PolicyFile { path: path.to_owned(), source })?;
    read_text(path, file)
}

fn read_text(path: &Path, file: File) -> Result<String, SidecarServerError> {
    bounded::read_text(file, MAX_POLICY_FILE_BYTES)
        .map_err(|source| SidecarServerError::PolicyFile { path: path.to_owned(), source })
}

/// The ratio of a session's total limits to one command's limits.
const COMMANDS_PER_SESSION: u64 = 4;

#[cfg(test)]
mod tests {
    use portcullis_types::ShellPosture;

    use super::*;

    fn config(text: &str) -> Result<SidecarServerConfig, SidecarServerError> {
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "policy", text },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        })
        .unwrap();
        SidecarServerConfig::from_policy(&policy, "/w".into(), "/s".into(), Vec::new())
    }

    /// The shipped policy with `section` in place of its `[shell]`.
    fn config_with_shell(section: &str) -> Result<SidecarServerConfig, SidecarServerError> {
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
            SessionConfig { max_command_timeout: config.session.command_timeout, ..SessionConfig::default() }
        );
    }

    #[test]
    fn sidecar_configuration_follows_the_policy() {
        let config = config_with_shell(
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
    fn without_a_shell_or_a_mount_there_is_no_sidecar() {
        for section in ["", "[shell]\nenabled = false"] {
            assert!(
                matches!(config_with_shell(section), Err(SidecarServerError::NoShell { .. })),
                "{section}"
            );
        }
        let without_mounts = config_with_shell("[shell]\nenabled = true");
        assert!(matches!(without_mounts, Err(SidecarServerError::Config { setting: "mounts", .. })));
    }

    #[test]
    fn a_configuration_reaches_an_embedded_sidecar_as_it_is() {
        let config = config(DEFAULT_POLICY).unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<SidecarServerConfig>(&text).unwrap(), config);
        let unknown = text.replacen('{', "{\"more\":1,", 1);
        assert!(serde_json::from_str::<SidecarServerConfig>(&unknown).is_err());
    }
}
