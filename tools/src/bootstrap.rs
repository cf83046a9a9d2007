//! Assembles a registry with a sandbox.
//!
//! [`bootstrap_runtime_tools`] returns the registry. The other functions return the builder, for programs
//! that add tools or settings of their own.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use portcullis_confine::{Layer, Requirement, probe_kernel};
use portcullis_policy::{MountSpec, RequiredLayer, WorkspaceSecurityPolicy};
use portcullis_types::{RunnerBootstrapEnvelope, SidecarSocket};
use portcullis_undo::{MountRoot, UndoStore};

use crate::{
    builder::RegistryBuilder,
    embedded,
    error::BootstrapError,
    expectations::StartupExpectations,
    modules::{ModuleError, ModuleOrigin, ModulesFolder, NotUtf8, read_file},
    policy_files::PolicyFiles,
    registry::ToolRegistry,
    sandbox::{
        CompileLimits, HostWasmToolRunner, RunnerConfig, hard_links::PrivatePaths, mounts::MountTable,
    },
    shell::ShellSource,
    state,
    web::{HttpClientConfig, SecretLocation},
};

/// Assembles a registry: policy, state, mounts, runner, core tools, native tools.
///
/// # Errors
/// [`BootstrapError`] if a part is missing or unusable; a partial registry is never returned.
///
/// # Cancellation
/// A dropped future stops the modules that it started.
pub async fn bootstrap_runtime_tools(
    envelope: &RunnerBootstrapEnvelope,
) -> Result<ToolRegistry, BootstrapError> {
    runtime_builder(envelope).await?.build()
}

/// Does the same as [`bootstrap_runtime_tools`], but returns the builder, for embedders that add tools of their own.
///
/// # Errors
/// As in [`bootstrap_runtime_tools`].
///
/// # Cancellation
/// As in [`bootstrap_runtime_tools`].
pub async fn runtime_builder(envelope: &RunnerBootstrapEnvelope) -> Result<RegistryBuilder, BootstrapError> {
    runtime_builder_with(envelope, &PolicyFiles::find(envelope)?).await
}

/// Does the same as [`runtime_builder`], with policy texts that were read earlier and may have been edited
/// since.
///
/// # Errors
/// As in [`bootstrap_runtime_tools`].
///
/// # Cancellation
/// As in [`bootstrap_runtime_tools`].
pub async fn runtime_builder_with(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
) -> Result<RegistryBuilder, BootstrapError> {
    build_from(envelope, files, MountSource::Workspace).await
}

/// Does the same as [`runtime_builder_with`], for a registry that is only described and never called. The
/// workspace is not mounted, so only the state folder is created.
///
/// # Errors
/// As in [`bootstrap_runtime_tools`].
///
/// # Cancellation
/// As in [`bootstrap_runtime_tools`].
pub async fn builder_for_listing(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
) -> Result<RegistryBuilder, BootstrapError> {
    build_from(envelope, files, MountSource::Nowhere).await
}

/// The source of the mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MountSource {
    Workspace,
    Nowhere,
}

async fn build_from(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    workspace: MountSource,
) -> Result<RegistryBuilder, BootstrapError> {
    let policy = files.load(envelope.sandbox_tier)?;
    // A registry that is only described also shows a policy that fails its expectations.
    let expected = match workspace {
        MountSource::Workspace => StartupExpectations::beside(files, envelope.sandbox_tier)?,
        MountSource::Nowhere => None,
    };
    let kernel = probe_kernel();
    for layer in [Layer::Landlock, Layer::Seccomp] {
        if layer_requirement(&policy, layer) == Requirement::Required
            && let Some(reason) = kernel.missing(layer)
        {
            return Err(BootstrapError::MissingLayer { layer: layer.as_str(), reason: reason.to_owned() });
        }
    }
    // Check the confinement layers first, so that a start that they refuse leaves nothing on disk.
    state::prepare(&envelope.state)?;
    let cache = shared_cache(envelope);
    let folder = files.modules_folder(&policy)?;
    let private_paths = private_paths(envelope, files, &policy, cache.clone())?;
    let secrets = files.secrets(&policy);
    let mounts = Arc::new(match workspace {
        MountSource::Workspace => MountTable::open(&envelope.workspace, policy.mounts(), &private_paths)?,
        MountSource::Nowhere => MountTable::default(),
    });
    let cache = cache.unwrap_or_else(|| envelope.state.clone());
    let runner = HostWasmToolRunner::new(RunnerConfig {
        state: envelope.state.clone(),
        cache: cache.clone(),
        mounts: Arc::clone(&mounts),
        protected: Arc::new(policy.protected().clone()),
        hidden: Arc::new(policy.hidden().clone()),
        landlock: layer_requirement(&policy, Layer::Landlock),
        seccomp: layer_requirement(&policy, Layer::Seccomp),
        concurrency: policy.limits().concurrency,
        compiler: envelope.compiler.clone(),
        compile_limits: CompileLimits::default(),
    })?;
    let requests = HttpClientConfig {
        state: envelope.state.clone(),
        landlock: layer_requirement(&policy, Layer::Landlock),
        seccomp: layer_requirement(&policy, Layer::Seccomp),
        ports: policy.network_ports(),
        proxy: policy.egress().proxy.as_ref().map(|proxy| proxy.url().clone()),
        ca: files.ca(&policy)?,
        secrets,
    };
    let mut builder = ToolRegistry::builder()
        .policy(policy)
        .expectations(expected)
        .requests(requests)
        .state(&envelope.state)
        .cache(cache)
        .guests(mounts, runner)
        .default_tools()
        .hide_examples()
        .shell(shell_source(envelope))
        .workspace(&envelope.workspace, private_paths.operators());
    for module in [&embedded::CORE, &embedded::SEARCH] {
        builder.add_embedded(module).await?;
    }
    for steps in [&embedded::PDF_STEPS, &embedded::VAULT_STEPS, &embedded::WEB_STEPS] {
        builder.add_steps(steps).await?;
    }
    for path in &envelope.modules {
        add_named(&mut builder, path).await?;
    }
    if let Some(folder) = folder {
        add_discovered(&mut builder, &ModulesFolder::open(&folder)?).await;
    }
    Ok(builder)
}

/// The paths that no mount may touch.
fn private_paths(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    policy: &WorkspaceSecurityPolicy,
    cache: Option<PathBuf>,
) -> Result<PrivatePaths, BootstrapError> {
    Ok(PrivatePaths {
        state: Some(envelope.state.clone()),
        cache,
        policy: files.operator.path.clone(),
        // A tool that could write there could plant a module for the next start.
        modules: files.modules_folder(policy)?,
        // A project's folder is a mount, so the overlay in it is protected by path instead.
        overlay: files
            .overlay
            .as_ref()
            .filter(|_| policy.project().is_none())
            .and_then(|overlay| overlay.path.clone()),
        secrets: files.secrets(policy).iter().filter_map(SecretLocation::file).collect(),
    })
}

/// Opens the mounts of a policy whose folders exist, and lists the mounts whose folders are missing. Creates
/// nothing.
pub(crate) fn existing_mounts(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    policy: &WorkspaceSecurityPolicy,
) -> (Result<MountTable, BootstrapError>, Vec<MountSpec>) {
    let (existing, missing): (Vec<MountSpec>, Vec<MountSpec>) = policy
        .mounts()
        .iter()
        .cloned()
        .partition(|mount| envelope.workspace.join(&mount.folder).symlink_metadata().is_ok());
    let open = |private_paths| {
        if existing.is_empty() {
            Ok(MountTable::default())
        } else {
            Ok(MountTable::open(&envelope.workspace, &existing, &private_paths)?)
        }
    };
    (private_paths(envelope, files, policy, envelope.cache.clone()).and_then(open), missing)
}

/// Opens the recorded changes of an envelope's calls, and the mounts with `undo` in which they were made.
///
/// # Errors
/// [`BootstrapError`] if the policy or a mount is unusable.
pub fn open_undo_store(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
) -> Result<(UndoStore, Vec<MountRoot>), BootstrapError> {
    let policy = files.load(envelope.sandbox_tier)?;
    let private_paths = private_paths(envelope, files, &policy, shared_cache(envelope))?;
    let with_undo: Vec<MountSpec> = policy.mounts().iter().filter(|mount| mount.has_undo).cloned().collect();
    let mounts = MountTable::open(&envelope.workspace, &with_undo, &private_paths)?;
    let roots =
        mounts.iter().map(|mount| MountRoot::new(mount.name().as_str(), Arc::clone(mount.directory())));
    Ok((UndoStore::new(&envelope.state), roots.collect()))
}

/// Returns the envelope's cache folder of compiled modules, if it is writable: a home can be read-only
/// although the state folder is not. Without it, the state folder holds the compiled modules.
fn shared_cache(envelope: &RunnerBootstrapEnvelope) -> Option<PathBuf> {
    let cache = envelope.cache.as_ref()?;
    match state::prepare(cache) {
        Ok(()) => Some(cache.clone()),
        Err(error) => {
            tracing::warn!(
                cause = &error as &dyn std::error::Error,
                "compiled modules are kept in the state folder"
            );
            None
        }
    }
}

/// Returns the running sidecar that the envelope names, if it names one.
fn shell_source(envelope: &RunnerBootstrapEnvelope) -> ShellSource {
    match &envelope.sidecar {
        Some(SidecarSocket { path, token_file }) => {
            ShellSource::Socket { path: path.clone(), token_file: token_file.clone() }
        }
        None => ShellSource::Nowhere,
    }
}

/// Adds a module that the envelope names. An unusable module fails the start.
async fn add_named(builder: &mut RegistryBuilder, path: &Path) -> Result<(), BootstrapError> {
    let name = path.display().to_string();
    let result = match read_file(path) {
        Ok(wasm) => {
            builder.add_foreign(name.clone(), &wasm, ModuleOrigin::Named).await.map_err(ModuleError::from)
        }
        Err(error) => Err(error),
    };
    result.map_err(|source| BootstrapError::Module { name, source })
}

/// Adds the modules of the folder one at a time, so that only one of them is in memory. An unusable module
/// does not stop the others.
async fn add_discovered(builder: &mut RegistryBuilder, folder: &ModulesFolder) {
    for name in folder.names() {
        let result = match name {
            Ok(name) => match folder.read(name) {
                Ok(wasm) => {
                    let added = builder.add_foreign(name.to_owned(), &wasm, ModuleOrigin::Found).await;
                    added.map_err(ModuleError::from)
                }
                Err(error) => Err(error),
            },
            Err(_lossy_name) => Err(ModuleError::Name),
        };
        if let Err(error) = result {
            builder.refuse(name.unwrap_or_else(|NotUtf8(lossy_name)| lossy_name), error);
        }
    }
}

/// Whether the policy requires a thread confinement layer. Any other layer is waived.
#[must_use]
pub fn layer_requirement(policy: &WorkspaceSecurityPolicy, layer: Layer) -> Requirement {
    let required = match layer {
        Layer::Landlock => policy.requires(RequiredLayer::Landlock),
        Layer::Seccomp => policy.requires(RequiredLayer::Seccomp),
        _ => false,
    };
    if required { Requirement::Required } else { Requirement::Waived }
}
