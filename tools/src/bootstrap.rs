//! [`runtime_builder_with`]: the one place that assembles a registry with a sandbox (specification 004,
//! "Registration"). [`bootstrap_runtime_tools`] does it in one call, for a program that adds no tools; the
//! command line adds the place of its shell.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use portcullis_confine::{
    Layer, Requirement, probe_kernel,
    trusted::{self, TrustError},
};
use portcullis_policy::{
    DEFAULT_POLICY, LoadOptions, PolicySource, RequiredLayer, SecretName, WorkspaceSecurityPolicy,
};
use portcullis_types::{RunnerBootstrapEnvelope, SandboxTier, SidecarSocket};

use crate::{
    builder::RegistryBuilder,
    embedded,
    error::BootstrapError,
    modules::{ModuleError, ModuleOrigin, ModulesFolder, modules_path, read_file},
    registry::ToolRegistry,
    sandbox::links::PrivatePaths,
    sandbox::mounts::MountTable,
    sandbox::{CompileLimits, HostWasmToolRunner, RunnerConfig},
    shell::ShellPlace,
    state,
    web::{GateTerms, SecretError, SecretPlace, TakenVariables},
};

/// The overlay in a workspace, which may only restrict the operator's policy.
pub const OVERLAY_FILE: &str = "portcullis.toml";

/// The largest policy file: 1 MiB.
const MAX_READ_BYTES: u64 = 1 << 20;

/// Assembles a registry: policy, state, mounts, runner, core tools, native tools.
///
/// # Errors
/// [`BootstrapError`] if a part is missing or unusable; a partial registry is never returned.
///
/// # Cancellation
/// Dropping the future stops the modules that it started.
pub async fn bootstrap_runtime_tools(
    envelope: &RunnerBootstrapEnvelope,
) -> Result<ToolRegistry, BootstrapError> {
    runtime_builder(envelope).await?.build()
}

/// As [`bootstrap_runtime_tools`], for embedders that add tools of their own before they build.
///
/// # Errors
/// As for [`bootstrap_runtime_tools`].
///
/// # Cancellation
/// As for [`bootstrap_runtime_tools`].
pub async fn runtime_builder(envelope: &RunnerBootstrapEnvelope) -> Result<RegistryBuilder, BootstrapError> {
    runtime_builder_with(envelope, &PolicyFiles::find(envelope)?).await
}

/// As [`runtime_builder`], with policy texts that were read before and possibly edited since.
///
/// # Errors
/// As for [`bootstrap_runtime_tools`].
///
/// # Cancellation
/// As for [`bootstrap_runtime_tools`].
pub async fn runtime_builder_with(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
) -> Result<RegistryBuilder, BootstrapError> {
    build_from(envelope, files, MountsOf::Workspace).await
}

/// As [`runtime_builder_with`], for a registry that is only described, not called: without the workspace's
/// mounts, so that only the state folder is made.
///
/// # Errors
/// As for [`bootstrap_runtime_tools`].
///
/// # Cancellation
/// As for [`bootstrap_runtime_tools`].
pub async fn describing_builder(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
) -> Result<RegistryBuilder, BootstrapError> {
    build_from(envelope, files, MountsOf::Nowhere).await
}

/// The source of the mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MountsOf {
    Workspace,
    Nowhere,
}

async fn build_from(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    workspace: MountsOf,
) -> Result<RegistryBuilder, BootstrapError> {
    let policy = files.load(envelope.sandbox_tier)?;
    let kernel = probe_kernel();
    for layer in [Layer::Landlock, Layer::Seccomp] {
        if requirement(&policy, layer) == Requirement::Required
            && let Some(reason) = kernel.missing(layer)
        {
            return Err(BootstrapError::MissingLayer { layer: layer.as_str(), reason: reason.to_owned() });
        }
    }
    state::prepare(&envelope.state)?;
    let folder = files.modules_folder(&policy)?;
    let secrets = files.secrets(&policy);
    let private = PrivatePaths {
        state: Some(envelope.state.clone()),
        policy: files.operator.path.clone(),
        // A tool with write access there could plant a module for the next start.
        modules: folder.clone(),
        overlay: files.overlay.as_ref().and_then(|overlay| overlay.path.clone()),
        secrets: secrets.iter().filter_map(SecretPlace::file).collect(),
    };
    let mounts = Arc::new(match workspace {
        MountsOf::Workspace => MountTable::open(&envelope.workspace, policy.mounts(), &private)?,
        MountsOf::Nowhere => MountTable::default(),
    });
    let runner = HostWasmToolRunner::new(RunnerConfig {
        state: envelope.state.clone(),
        mounts: Arc::clone(&mounts),
        protected: Arc::new(policy.protected().clone()),
        landlock: requirement(&policy, Layer::Landlock),
        seccomp: requirement(&policy, Layer::Seccomp),
        concurrency: policy.concurrency(),
        compiler: envelope.compiler.clone(),
        compile_limits: CompileLimits::default(),
    })?;
    let requests = GateTerms {
        state: envelope.state.clone(),
        landlock: requirement(&policy, Layer::Landlock),
        seccomp: requirement(&policy, Layer::Seccomp),
        ports: policy.network_ports(),
        proxy: policy.egress().proxy.as_ref().map(|proxy| proxy.url().clone()),
        ca: files.ca(&policy)?,
        secrets,
    };
    let mut builder = ToolRegistry::builder()
        .policy(policy)
        .requests(requests)
        .state(&envelope.state)
        .guests(mounts, runner)
        .default_tools()
        .shell(shell_place(envelope))
        .workspace(&envelope.workspace, private.operators());
    for module in [&embedded::CORE, &embedded::SEARCH] {
        builder.add_embedded(module).await?;
    }
    for steps in [&embedded::VAULT_STEPS, &embedded::WEB_STEPS] {
        builder.add_steps(steps).await?;
    }
    for path in &envelope.modules {
        add_named(&mut builder, path).await?;
    }
    if let Some(folder) = folder {
        add_found(&mut builder, &ModulesFolder::open(&folder)?).await;
    }
    Ok(builder)
}

/// The running sidecar that the envelope names.
fn shell_place(envelope: &RunnerBootstrapEnvelope) -> ShellPlace {
    match &envelope.sidecar {
        Some(SidecarSocket { path, token_file }) => {
            ShellPlace::Socket { path: path.clone(), token_file: token_file.clone() }
        }
        None => ShellPlace::Nowhere,
    }
}

/// Adds a named module. If it fails, so does the start.
async fn add_named(builder: &mut RegistryBuilder, path: &Path) -> Result<(), BootstrapError> {
    let name = path.display().to_string();
    let added = match read_file(path) {
        Ok(wasm) => {
            builder.add_foreign(name.clone(), &wasm, ModuleOrigin::Named).await.map_err(ModuleError::from)
        }
        Err(error) => Err(error),
    };
    added.map_err(|source| BootstrapError::Module { name, source })
}

/// Adds the modules of the folder one at a time, so that only one is in memory. An unusable module does not
/// stop the others.
async fn add_found(builder: &mut RegistryBuilder, folder: &ModulesFolder) {
    for name in folder.names() {
        let added = match name {
            Ok(name) => match folder.read(name) {
                Ok(wasm) => {
                    let added = builder.add_foreign(name.to_owned(), &wasm, ModuleOrigin::Found).await;
                    added.map_err(ModuleError::from)
                }
                Err(error) => Err(error),
            },
            Err(_shown) => Err(ModuleError::Name),
        };
        if let Err(error) = added {
            builder.refuse(name.unwrap_or_else(|shown| shown), error);
        }
    }
}

/// Whether the policy requires a layer of threads. A layer that it does not require is waived.
#[must_use]
pub fn requirement(policy: &WorkspaceSecurityPolicy, layer: Layer) -> Requirement {
    let required = match layer {
        Layer::Landlock => policy.requires(RequiredLayer::Landlock),
        Layer::Seccomp => policy.requires(RequiredLayer::Seccomp),
        _ => false,
    };
    if required { Requirement::Required } else { Requirement::Waived }
}

/// The policy's texts and their sources.
#[derive(Debug, Clone)]
pub struct PolicyFiles {
    operator: PolicyText,
    overlay: Option<PolicyText>,
    taken: TakenVariables,
}

#[derive(Debug, Clone)]
struct PolicyText {
    name: String,
    path: Option<PathBuf>,
    text: String,
}

impl PolicyFiles {
    /// Finds the operator's policy (the envelope's, else `/etc/portcullis/portcullis.toml`, else
    /// `$XDG_CONFIG_HOME/portcullis/portcullis.toml`, else the shipped default) and the workspace's overlay.
    ///
    /// # Errors
    /// [`BootstrapError::PolicyFile`] for a file that exists and cannot be read;
    /// [`BootstrapError::UntrustedPolicy`] for an operator's file that another user could change.
    pub fn find(envelope: &RunnerBootstrapEnvelope) -> Result<Self, BootstrapError> {
        let operator = match &envelope.policy {
            Some(path) => PolicyText::read_trusted(path)?,
            None => PolicyText::of_operator()?,
        };
        // The overlay is not checked for trust: it comes with the workspace, and can only restrict.
        let overlay = match PolicyText::read_if_there(&envelope.workspace.join(OVERLAY_FILE)) {
            // The workspace is a file; the error is reported where the workspace is opened.
            Err(BootstrapError::PolicyFile { source, .. })
                if source.kind() == io::ErrorKind::NotADirectory =>
            {
                None
            }
            found => found?,
        };
        Ok(Self { operator, overlay, taken: TakenVariables::default() })
    }

    /// The operator's policy alone, found in the usual places, else the shipped default: for a registry that
    /// has no workspace.
    ///
    /// # Errors
    /// [`BootstrapError::PolicyFile`] for a file that exists and cannot be read.
    pub fn without_workspace() -> Result<Self, BootstrapError> {
        Ok(Self::alone(PolicyText::of_operator()?))
    }

    /// One file as the operator's policy, without an overlay and without the trust check: to show, not to
    /// obey. See [`Self::untrusted`].
    ///
    /// # Errors
    /// [`BootstrapError::PolicyFile`] if the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, BootstrapError> {
        Ok(Self::alone(PolicyText::read(path)?))
    }

    fn alone(operator: PolicyText) -> Self {
        Self { operator, overlay: None, taken: TakenVariables::default() }
    }

    /// The same files, with values of secrets that [`TakenVariables::take`] took out of the environment.
    #[must_use]
    pub fn with_taken(mut self, taken: TakenVariables) -> Self {
        self.taken = taken;
        self
    }

    /// The secrets of a policy that was loaded from these files, sorted by name, each with the reason why its value
    /// cannot be used. Reads the values and drops them.
    #[must_use]
    pub fn examine_secrets(
        &self,
        policy: &WorkspaceSecurityPolicy,
    ) -> Vec<(SecretName, Option<SecretError>)> {
        let examine = |place: SecretPlace| (place.name().clone(), place.read().err());
        self.secrets(policy).into_iter().map(examine).collect()
    }

    /// Why a start would refuse the operator's file although it was read: another user could change it.
    #[must_use]
    pub fn untrusted(&self) -> Option<TrustError> {
        trusted::open_file(self.operator.path.as_deref()?).err()
    }

    /// Loads the policy from the texts.
    ///
    /// # Errors
    /// [`BootstrapError::Policy`] with every fault.
    pub fn load(&self, sandbox_tier: SandboxTier) -> Result<WorkspaceSecurityPolicy, BootstrapError> {
        Ok(WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: &self.operator.name, text: &self.operator.text },
            overlay: self
                .overlay
                .as_ref()
                .map(|overlay| PolicySource { name: &overlay.name, text: &overlay.text }),
            sandbox_tier,
        })?)
    }

    /// Where the operator's policy comes from, for people.
    #[must_use]
    pub fn operator_name(&self) -> &str {
        &self.operator.name
    }

    /// The text of the operator's policy.
    #[must_use]
    pub fn operator_text(&self) -> &str {
        &self.operator.text
    }

    /// The same files, with another text in place of the operator's. The file on disk is not changed.
    #[must_use]
    pub fn with_operator_text(mut self, text: String) -> Self {
        self.operator.text = text;
        self
    }

    /// The path of the operator's policy, if it is a file.
    #[must_use]
    pub fn operator_path(&self) -> Option<&Path> {
        self.operator.path.as_deref()
    }

    /// Where the overlay comes from, for people.
    #[must_use]
    pub fn overlay_name(&self) -> Option<&str> {
        self.overlay.as_ref().map(|overlay| overlay.name.as_str())
    }

    /// Where the modules of a policy lie: absolute, or relative to the operator's file.
    fn modules_folder(&self, policy: &WorkspaceSecurityPolicy) -> Result<Option<PathBuf>, BootstrapError> {
        let dir = policy.modules_dir().map(|dir| modules_path(dir, self.operator.path.as_deref()));
        Ok(dir.transpose()?)
    }

    /// The places of the secrets.
    fn secrets(&self, policy: &WorkspaceSecurityPolicy) -> Vec<SecretPlace> {
        let file = self.operator.path.as_deref();
        policy.secrets().map(|secret| SecretPlace::new(secret, file, &self.taken)).collect()
    }

    /// The file with further trusted certificates.
    fn ca(&self, policy: &WorkspaceSecurityPolicy) -> Result<Option<PathBuf>, BootstrapError> {
        let ca = policy.egress().ca.as_deref().map(|ca| modules_path(ca, self.operator.path.as_deref()));
        Ok(ca.transpose()?)
    }
}

impl PolicyText {
    fn of_operator() -> Result<Self, BootstrapError> {
        for path in usual_places() {
            match Self::read_trusted(&path) {
                Ok(found) => return Ok(found),
                Err(BootstrapError::PolicyFile { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { name: "shipped default".to_owned(), path: None, text: DEFAULT_POLICY.to_owned() })
    }

    fn read_if_there(path: &Path) -> Result<Option<Self>, BootstrapError> {
        match Self::read(path) {
            Ok(source) => Ok(Some(source)),
            Err(BootstrapError::PolicyFile { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a file that is obeyed, from the same descriptor that the trust check judged.
    fn read_trusted(path: &Path) -> Result<Self, BootstrapError> {
        let failed = |source| BootstrapError::PolicyFile { path: path.to_owned(), source };
        let file = match trusted::open_file(path) {
            Ok(file) => file,
            Err(TrustError::Unusable { source, .. }) => return Err(failed(source)),
            Err(TrustError::Missing { doubt, .. }) => {
                tracing::warn!(
                    file = %path.display(), cause = &*doubt as &dyn std::error::Error,
                    "there is no policy file, but another user could create one here (it would be refused) or may have removed one"
                );
                return Err(failed(io::ErrorKind::NotFound.into()));
            }
            Err(TrustError::Kind { .. }) => {
                let source = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
                return Err(failed(source));
            }
            Err(source) => {
                return Err(BootstrapError::UntrustedPolicy { path: path.to_owned(), source });
            }
        };
        let text = read_bounded(file).map_err(failed)?;
        Ok(Self { name: path.display().to_string(), path: Some(path.to_owned()), text })
    }

    fn read(path: &Path) -> Result<Self, BootstrapError> {
        let text =
            read_text(path).map_err(|source| BootstrapError::PolicyFile { path: path.to_owned(), source })?;
        Ok(Self { name: path.display().to_string(), path: Some(path.to_owned()), text })
    }
}

/// Reads a bounded text file. A FIFO in its place must not hold up the start, so the open does not block.
fn read_text(path: &Path) -> io::Result<String> {
    let non_blocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(non_blocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    read_bounded(file)
}

fn read_bounded(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_READ_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB"));
    }
    let is_utf16 =
        bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) || bytes.get(1) == Some(&0);
    String::from_utf8(bytes).map_err(|error| {
        let what = match is_utf16 {
            true => "it is UTF-16; save it as UTF-8".to_owned(),
            false => format!("it is not UTF-8: {}", error.utf8_error()),
        };
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

fn usual_places() -> Vec<PathBuf> {
    // A relative path counts as none (XDG Base Directory Specification).
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
    let own = config.map(|folder| folder.join("portcullis/portcullis.toml"));
    [Some(PathBuf::from("/etc/portcullis/portcullis.toml")), own].into_iter().flatten().collect()
}
