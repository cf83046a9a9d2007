//! Assembles a registry from its parts. [`crate::bootstrap_runtime_tools`], which front ends call, uses it;
//! so do embedders with tools of their own.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, Weak},
};

use portcullis_policy::{
    Approval, AuditSync, FlowLabel, GrantedMount, KnownTools, ToolOrigin, WorkspaceSecurityPolicy,
};
use portcullis_types::{SandboxTier, Tool, ToolError, ToolName};
use serde_json::Value;

use self::registration::{Registration, ShippedModule};
use crate::{
    audit::{AuditLog, Recovery, SyncMode},
    bootstrap::PolicyFiles,
    call::{Caller, NestingContext},
    error::BootstrapError,
    hook::{CallHook, Hooks},
    modules::{ForeignModule, Lock, ModuleError, ModuleOrigin, RefusedModule},
    native::{self, Capability, FollowOutput, StillGranted},
    output_store::OutputStore,
    pipeline::Host,
    rates::Rates,
    registry::{BuildFindings, ToolRegistry},
    run_labels::RunLabels,
    sandbox::{EmbeddedModule, HostWasmToolRunner, WasmError, mounts::MountTable},
    shell::{ShellBackend, ShellSource, SidecarConfig},
    slots::CallSlots,
    state,
    table::{ServedTools, ToolTable},
    web::{HttpClientConfig, HttpClientHandle},
};

mod registration;

/// The policy in force, and the tools that it is about.
struct PolicyAndTools {
    policy: Arc<WorkspaceSecurityPolicy>,
    /// Weak: one of these tools holds this, and would keep itself and all others alive.
    tools: Weak<ServedTools>,
}

/// Builder of a registry. [`ToolRegistry::builder`] lists the defaults.
#[must_use]
pub struct RegistryBuilder {
    policy: Option<WorkspaceSecurityPolicy>,
    state: Option<PathBuf>,
    mounts: Option<Arc<MountTable>>,
    runner: Option<HostWasmToolRunner>,
    natives: Vec<(Arc<dyn Tool>, ToolOrigin)>,
    capabilities: Vec<Capability>,
    hooks: Vec<Arc<dyn CallHook>>,
    modules: Vec<ShippedModule>,
    /// Modules whose tools are steps of operations.
    steps: Vec<ShippedModule>,
    /// The start of the host's HTTP client. Without it no tool makes requests.
    http_client: Option<HttpClientConfig>,
    foreign: Vec<ForeignModule>,
    refused: Vec<RefusedModule>,
    /// Names of tools that are added later.
    awaited: Vec<ToolName>,
    shell: ShellSource,
    /// The host folder of the mounts, and paths that no mount may touch. Without them there is no shell.
    workspace: Option<(PathBuf, Vec<PathBuf>)>,
}

impl RegistryBuilder {
    /// The operator's policy, else the shipped one; state in `$XDG_STATE_HOME/portcullis/in-process`; no
    /// mounts, no guests, no tools but `output_read`.
    pub(crate) fn new() -> Self {
        Self {
            policy: None,
            state: None,
            mounts: None,
            runner: None,
            natives: Vec::new(),
            capabilities: Vec::new(),
            hooks: Vec::new(),
            modules: Vec::new(),
            steps: Vec::new(),
            http_client: None,
            foreign: Vec::new(),
            refused: Vec::new(),
            awaited: Vec::new(),
            shell: ShellSource::Nowhere,
            workspace: None,
        }
    }

    /// Adds a native tool. It runs in this process, outside the sandbox, so the policy must enable it by name
    /// (`[tools.NAME] enabled = true`), else its calls are denied. A tool written for another interface goes
    /// through `IntoTool` of `portcullis-adapters` first.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// Adds a native tool behind a pointer, as `IntoTool` of `portcullis-adapters` returns it.
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.natives.push((tool, ToolOrigin::Native));
        self
    }

    /// Says that tools with these names are added while the registry serves, by [`ToolRegistry::add_tool`], so
    /// that entries of the policy may name them. Without this, such an entry is a fault: it would be taken for
    /// a misspelt name.
    pub fn awaits(mut self, names: impl IntoIterator<Item = ToolName>) -> Self {
        self.awaited.extend(names);
        self
    }

    /// Adds the shipped native tools: time, echo, arithmetic, and `failing_tool`.
    pub fn default_tools(mut self) -> Self {
        let shipped = native::default_tools().into_iter();
        self.natives.extend(shipped.map(|tool| (tool, ToolOrigin::ShippedNative)));
        self
    }

    /// Adds the shipped native tools with these names, unless they are already added.
    pub fn shipped_tools(mut self, names: &[String]) -> Self {
        for tool in native::default_tools() {
            let name = tool.schema().name;
            let is_there = |(other, origin): &(Arc<dyn Tool>, ToolOrigin)| {
                *origin == ToolOrigin::ShippedNative && other.schema().name == name
            };
            if names.contains(&name) && !self.natives.iter().any(is_there) {
                self.natives.push((tool, ToolOrigin::ShippedNative));
            }
        }
        self
    }

    /// Adds the tools of a capability, unless they are already added. A capability whose tools are not here fails the
    /// build.
    pub fn capability(mut self, capability: Capability) -> Self {
        self.capabilities.push(capability);
        self
    }

    /// Adds a hook that every call passes, after the hooks added before.
    pub fn hook(mut self, hook: impl CallHook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Uses this policy.
    pub fn policy(mut self, policy: WorkspaceSecurityPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Keeps state in this folder. It must lie outside every mount.
    pub fn state(mut self, folder: impl Into<PathBuf>) -> Self {
        self.state = Some(folder.into());
        self
    }

    /// Uses these mounts and this runner for guests.
    pub fn guests(mut self, mounts: Arc<MountTable>, runner: HostWasmToolRunner) -> Self {
        self.mounts = Some(mounts);
        self.runner = Some(runner);
        self
    }

    /// Sets where the commands of `shell_exec` run. Default: at the sidecar that the envelope names, else
    /// nowhere.
    pub fn shell(mut self, source: ShellSource) -> Self {
        self.shell = source;
        self
    }

    /// Sets the host folder above the mounts, for a sidecar of our own, and adds `shell_exec`. No mount may
    /// touch the `private` host paths. [`crate::runtime_builder`] has called it.
    pub fn workspace(mut self, folder: impl Into<PathBuf>, private: Vec<PathBuf>) -> Self {
        self.workspace = Some((folder.into(), private));
        self
    }

    /// Adds the tools of a module: loads it, asks for its declarations, and adds its hash to the policy's
    /// digest. A foreign module is compiled in a separate process, unless an earlier start has compiled
    /// it.
    ///
    /// # Errors
    /// [`BootstrapError::Wasm`] when it cannot be loaded or does not describe itself, or when
    /// [`RegistryBuilder::guests`] was not called before.
    ///
    /// # Cancellation
    /// Dropping the future stops the module.
    pub async fn module(
        mut self,
        name: impl Into<String>,
        wasm: &[u8],
        origin: ToolOrigin,
    ) -> Result<Self, BootstrapError> {
        let name = name.into();
        if origin == ToolOrigin::ForeignModule {
            self.add_foreign(name, wasm, ModuleOrigin::Named).await?;
            return Ok(self);
        }
        let runner = self.runner.as_ref().ok_or(WasmError::NoRunner)?;
        let module = runner.load(wasm)?;
        let declarations = runner.describe(&module).await?;
        self.modules.push((name, module, declarations));
        Ok(self)
    }

    /// Adds the tools of a module that this program carries.
    pub(crate) async fn add_embedded(&mut self, module: &'static EmbeddedModule) -> Result<(), WasmError> {
        let runner = self.runner.as_ref().ok_or(WasmError::NoRunner)?;
        let guest = HostWasmToolRunner::embedded(module);
        let declarations = runner.describe(&guest).await?;
        self.modules.push((module.name.to_owned(), guest, declarations));
        Ok(())
    }

    /// Adds an embedded module whose tools are the steps of an operation.
    pub(crate) async fn add_steps(&mut self, steps: &'static EmbeddedModule) -> Result<(), WasmError> {
        self.add_embedded(steps).await?;
        self.steps.extend(self.modules.pop());
        Ok(())
    }

    /// Sets how the host's HTTP client is started, and adds `web_fetch` and, with a provider in the policy, `web_search`.
    pub(crate) fn requests(mut self, config: HttpClientConfig) -> Self {
        self.http_client = Some(config);
        self
    }

    /// Loads a foreign module and asks for its declarations. Whether its tools are registered is decided
    /// when all modules are known.
    pub(crate) async fn add_foreign(
        &mut self,
        name: String,
        wasm: &[u8],
        wanted: ModuleOrigin,
    ) -> Result<(), WasmError> {
        let runner = self.runner.as_ref().ok_or(WasmError::NoRunner)?;
        let module = runner.load_foreign(wasm).await?;
        let declarations = runner.describe(&module).await?;
        self.foreign.push(ForeignModule { name, module, declarations, wanted });
        Ok(())
    }

    /// Notes a module that is refused, and why.
    pub(crate) fn refuse(&mut self, name: impl Into<String>, error: ModuleError) {
        self.refused.push(RefusedModule { name: name.into(), error, tools: Vec::new() });
    }

    /// Builds the registry.
    ///
    /// # Errors
    /// [`BootstrapError`]: a name that is taken, a schema that cannot be used, a state folder or audit log
    /// that cannot be written.
    pub fn build(self) -> Result<ToolRegistry, BootstrapError> {
        let policy = self.policy.map_or_else(installed_policy, Ok)?;
        let state = self.state.or_else(default_state).ok_or(BootstrapError::NoHome)?;
        state::prepare(&state)?;
        let lock = Lock::read(&state)?;

        let mut registration = Registration::new(&lock);
        registration.natives(self.natives)?;
        registration.capabilities(&self.capabilities)?;
        if let Some((workspace, private)) = self.workspace {
            let ca = self.http_client.as_ref().and_then(|http_client| http_client.ca.clone());
            let config = sidecar_config(&policy, &state, workspace, private, ca);
            registration.shell(ShellBackend::new(&self.shell, config), policy.shell())?;
        }
        registration.shipped_modules(self.modules)?;
        let has_steps = !self.steps.is_empty();
        let http_client = self.http_client.map(|config| Arc::new(HttpClientHandle::new(config)));
        registration.operations(self.steps, http_client.as_ref(), policy.search())?;
        registration.ensure_capabilities(&self.capabilities)?;
        let outputs = Arc::new(OutputStore::open(&state)?);
        let known = Arc::new(OnceLock::new());
        let labels = Arc::new(RunLabels::default());
        registration.output_read(
            &outputs,
            still_granted(Arc::clone(&known)),
            follow(Arc::clone(&labels), Arc::clone(&known)),
        )?;
        // Foreign modules come last: every name of ours is taken before they claim one.
        registration.foreign_modules(self.foreign, self.refused)?;
        let Registration { mut tools, steps, refused, digests, .. } = registration;
        // Before anything is opened for calls: a misspelt entry would restrict no tool.
        let mut names = known_tools(&tools, &steps, &lock, &refused);
        self.awaited.iter().for_each(|name| names.add(name));
        let idle = policy.check_tools(&names)?;
        tools.note_lost(lost(&tools, &lock, &refused));

        let policy = Arc::new(policy.with_modules(digests));
        let (audit, recovery) = AuditLog::open(&state, sync_mode(&policy))?;
        log_recovery(&recovery, &refused);
        // Set after all tools are registered and before any is called.
        let tools = Arc::new(ServedTools::new(tools));
        let _ = known.set(PolicyAndTools { policy: Arc::clone(&policy), tools: Arc::downgrade(&tools) });
        let host = Host {
            tools,
            mounts: self.mounts.unwrap_or_default(),
            audit: Arc::new(audit),
            outputs,
            runner: self.runner.map(Arc::new),
            slots: Arc::new(CallSlots::new(policy.concurrency())),
            rates: Arc::new(Rates::new(policy.calls_per_minute())),
            labels,
            http_client,
            hooks: Hooks::new(self.hooks),
            operation_steps: None,
            policy,
        };
        let setup = BuildFindings { refused, idle, lock, state };
        Ok(ToolRegistry::new(host, has_steps.then_some(steps), setup))
    }
}

impl std::fmt::Debug for RegistryBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryBuilder")
            .field("natives", &self.natives.len())
            .field("modules", &(self.modules.len() + self.foreign.len()))
            .finish_non_exhaustive()
    }
}

impl ToolRegistry {
    /// A registry of the shipped native tools alone, under the operator's policy or the shipped one:
    /// `get_current_time`, `echo`, arithmetic, `failing_tool`, `output_read` (specification 000,
    /// "ToolRegistry").
    ///
    /// # Errors
    /// As [`RegistryBuilder::build`].
    pub fn with_defaults() -> Result<Self, BootstrapError> {
        Self::builder().default_tools().build()
    }
}

/// The operator's policy, or the shipped one.
fn installed_policy() -> Result<WorkspaceSecurityPolicy, BootstrapError> {
    PolicyFiles::without_workspace()?.load(SandboxTier::Process)
}

fn default_state() -> Option<PathBuf> {
    // A relative path counts as none (XDG Base Directory Specification).
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(base.join("portcullis/in-process"))
}

/// The settings of a sidecar of our own.
fn sidecar_config(
    policy: &WorkspaceSecurityPolicy,
    state: &Path,
    workspace: PathBuf,
    private: Vec<PathBuf>,
    ca: Option<PathBuf>,
) -> SidecarConfig {
    let (policy, state) = (Arc::new(policy.clone()), state.to_owned());
    SidecarConfig { policy, workspace, state, private, ca, unconfined: false }
}

fn sync_mode(policy: &WorkspaceSecurityPolicy) -> SyncMode {
    match policy.audit_sync() {
        AuditSync::Interval => SyncMode::Interval,
        AuditSync::Always => SyncMode::Always,
    }
}

/// Whether the policy in force would still grant what a stored output was made with: its tool may still be
/// called and would get every mount of that grant. A tool that is not registered gets nothing.
fn still_granted(known: Arc<OnceLock<PolicyAndTools>>) -> StillGranted {
    Arc::new(move |stored| {
        let Some(PolicyAndTools { policy, tools }) = known.get() else { return false };
        let Some(tools) = tools.upgrade() else { return false };
        let tools = tools.snapshot();
        let tool = stored["tool"].as_str().and_then(|tool| tools.get(tool));
        let Some(Ok(now)) = tool.map(|tool| policy.assign(tool.facts())) else { return false };
        let Some(mounts) = stored["grant"]["mounts"].as_array() else { return false };
        if now.approval == Approval::Deny {
            return false;
        }
        let granted = policy.mounts_of(&now.profile);
        let is_granted = |mount: &Value| {
            granted.iter().any(|now: &GrantedMount| {
                mount["name"] == now.name.as_str()
                    && (mount["access"] == "read" || mount["access"] == now.access.as_str())
            })
        };
        mounts.iter().all(is_granted)
    })
}

/// Brings the labels of a stored output to the call that reads it: its run, and the process, may be others than those that
/// made it.
fn follow(run_labels: Arc<RunLabels>, known: Arc<OnceLock<PolicyAndTools>>) -> FollowOutput {
    Arc::new(move |ctx, stored| {
        let labels = labels_of(stored);
        let (run_labels, known, call_id) = (Arc::clone(&run_labels), Arc::clone(&known), ctx.call_id.clone());
        let detached = || Caller::new(ctx.agent_id.clone(), ctx.run_id.clone()).owner();
        let owner =
            ctx.extensions.get::<NestingContext>().map_or_else(detached, |parent| parent.caller.owner());
        Box::pin(async move {
            let (Some(labels), Some(PolicyAndTools { policy, .. })) = (labels, known.get()) else {
                return Err(ToolError::internal("a stored output does not tell what it was made from"));
            };
            Ok(run_labels.bring(&owner, &call_id, &labels, policy).await?)
        })
    })
}

/// The labels that an output was stored with; none if they cannot be read.
fn labels_of(stored: &Value) -> Option<BTreeSet<FlowLabel>> {
    stored["labels"].as_array()?.iter().map(|label| label.as_str()?.parse().ok()).collect()
}

/// The names that entries of the policy may have: all registered tools, the steps, approved tools, and the
/// tools of refused modules.
fn known_tools(tools: &ToolTable, steps: &ToolTable, lock: &Lock, refused: &[RefusedModule]) -> KnownTools {
    let mut known = KnownTools::shipped();
    for tool in tools.iter().chain(steps.iter()) {
        known.add(&tool.facts().name);
        tool.aliases().iter().for_each(|alias| known.add_alias(alias, &tool.facts().name));
    }
    lock.tools().chain(refused.iter().flat_map(|module| &module.tools)).for_each(|name| known.add(name));
    if refused.iter().any(|module| module.tools.is_empty()) {
        known.add_unreadable();
    }
    known
}

/// The tools that should be here and are not: approved ones, and those of refused modules.
fn lost(tools: &ToolTable, lock: &Lock, refused: &[RefusedModule]) -> Vec<ToolName> {
    let names = lock.tools().chain(refused.iter().flat_map(|module| &module.tools));
    names.filter(|name| tools.get(name.as_str()).is_none()).cloned().collect()
}

/// Logs the repairs of the audit log, and the refused modules.
fn log_recovery(recovery: &Recovery, refused: &[RefusedModule]) {
    for module in refused {
        let error = module.error() as &dyn std::error::Error;
        tracing::warn!(module = module.name(), error, "a foreign module is refused");
    }
    if !recovery.is_clean() {
        tracing::warn!(?recovery, "the audit log was repaired after a crash");
    }
}
