//! What a daemon of its own offers: read from the policy and the command line.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use portcullis_policy::{DEFAULT_POLICY, LoadOptions, PolicySource, WorkspaceSecurityPolicy};
use portcullis_types::{Access, SandboxTier, ShellPosture};

use super::{CommandConfig, DaemonConfig, DaemonError, DaemonMount, ServiceLimits, SessionLimits};

/// Where things are, as the command line says it.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) workspace: PathBuf,
    pub(super) policy: Option<PathBuf>,
    pub(super) state: PathBuf,
    pub(super) private: Vec<PathBuf>,
}

/// The configuration of a daemon.
///
/// # Errors
/// If a policy cannot be read, or is none.
pub(super) fn config(places: &Places) -> Result<DaemonConfig, DaemonError> {
    let overlay_path = places.workspace.join(OVERLAY_FILE);
    let operator = places.policy.as_deref().map(read).transpose()?;
    let overlay = match read(&overlay_path) {
        Ok(text) => Some(text),
        Err(DaemonError::PolicyFile { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let name = places.policy.as_ref().map_or_else(|| "default".to_owned(), |path| path.display().to_string());
    let overlay_name = overlay_path.display().to_string();
    let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
        operator: PolicySource { name: &name, text: operator.as_deref().unwrap_or(DEFAULT_POLICY) },
        overlay: overlay.as_deref().map(|text| PolicySource { name: &overlay_name, text }),
        sandbox_tier: SandboxTier::Process,
    })
    .map_err(|source| DaemonError::Policy { source })?;
    let mount = |name: &str| {
        let spec = policy.mounts().iter().find(|spec| spec.name.as_str() == name)?;
        Some(DaemonMount { name: name.to_owned(), folder: spec.folder.clone(), access: Access::Write })
    };
    let mut private = places.private.clone();
    private.extend(places.policy.clone());
    private.push(overlay_path);
    Ok(DaemonConfig {
        state: places.state.clone(),
        workspace: places.workspace.clone(),
        mounts: ["shared", "tmp"].into_iter().filter_map(mount).collect(),
        home: "shared".to_owned(),
        private,
        least_posture: ShellPosture::Contained,
        environment: Vec::new(),
        commands: CommandConfig::default(),
        protected: policy.protected().patterns().map(str::to_owned).collect(),
        session: SessionLimits::default(),
        service: ServiceLimits::default(),
    })
}

fn read(path: &Path) -> Result<String, DaemonError> {
    let failed = |source| DaemonError::PolicyFile { path: path.to_owned(), source };
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(POLICY_BYTES + 1).read_to_string(&mut text))
        .map_err(failed)?;
    if text.len() as u64 > POLICY_BYTES {
        return Err(failed(io::Error::other("is larger than 1 MiB")));
    }
    Ok(text)
}

/// The file in a workspace that may take away from the operator's policy.
const OVERLAY_FILE: &str = "portcullis.toml";

/// The largest policy.
const POLICY_BYTES: u64 = 1 << 20;
