//! Assembles a registry from its parts. Front ends use the builder through [`crate::bootstrap_runtime_tools`], and
//! embedders with tools of their own use it directly.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, Weak},
};

use portcullis_policy::{Approval, ToolOrigin, WorkspaceSecurityPolicy};
use portcullis_types::{Tool, ToolError, ToolName};
use portcullis_undo::UndoStore;

use self::{
    findings::{known_tools, log_refusals, missing_tools},
    installed::installed_policy,
    registration::{Registration, ShippedModule},
};
use crate::{
    approval::{RuleWriter, StandingApprovals},
    audit::CheckpointSink,
    call::{Caller, NestingContext},
    configured_tool::ConfiguredTool,
    error::BootstrapError,
    expectations::StartupExpectations,
    external::ExternalTool,
    hook::{CallHook, Hooks},
    modules::{ForeignModule, ModuleError, ModuleOrigin, Pins, RefusedModule},
    native::{self, AddOutputLabelsFn, Capability, IsStillGrantedFn, NativeStates},
    output_store::OutputStore,
    pipeline::Host,
    process_start,
    rate_limit::Rates,
    registry::{BuildFindings, ToolRegistry},
    run_labels::RunLabels,
    sandbox::{EmbeddedModule, HostWasmToolRunner, WasmError, mounts::MountTable},
    sealing,
    shell::{ShellBackend, ShellSource, SidecarOptions},
    slots::CallSlots,
    state,
    stored_grant::StoredGrant,
    tool_table::ServedTools,
    web::{HttpClientConfig, HttpClientHandle},
};

mod findings;
mod installed;
mod registration;

/// The policy in force, and the tools that it applies to.
struct PolicyAndTools {
    policy: Arc<WorkspaceSecurityPolicy>,
    /// Weak: one of these tools holds this struct, and a strong reference would leak all tools.
    tools: Weak<ServedTools>,
}

/// Builder of a registry. [`ToolRegistry::builder`] lists the defaults.
#[must_use]
pub struct RegistryBuilder {
    policy: Option<WorkspaceSecurityPolicy>,
    /// The operator's expectations about the policy.
    expectations: Option<StartupExpectations>,
    state: Option<PathBuf>,
    /// The folder that remembers the hash of this program. Default: the state folder.
    cache: Option<PathBuf>,
    /// Receives the checkpoints of the audit log unless the policy names another sink.
    checkpoint_sink: Option<CheckpointSink>,
    mounts: Option<Arc<MountTable>>,
    runner: Option<HostWasmToolRunner>,
    natives: Vec<(Arc<dyn Tool>, ToolOrigin)>,
    configured: Vec<ConfiguredTool>,
    states: NativeStates,
    /// Shipped tools that are hidden from models, unless the policy enables them by name.
    hidden_examples: Vec<&'static str>,
    capabilities: Vec<Capability>,
    hooks: Vec<Arc<dyn CallHook>>,
    /// Writes the rules of standing approvals. Without a writer, none are offered to approvers.
    rule_writer: Option<Box<dyn RuleWriter>>,
    modules: Vec<ShippedModule>,
    /// Modules whose tools are steps of operations.
    steps: Vec<ShippedModule>,
    /// How the host's HTTP client is started. Without it, no tool can make requests.
    http_client: Option<HttpClientConfig>,
    foreign: Vec<ForeignModule>,
    refused: Vec<RefusedModule>,
    /// Names of tools that are added after the build.
    late_tools: Vec<ToolName>,
    shell: ShellSource,
    /// The host folder of the mounts, and the paths that no mount may touch. Without them, there is no shell.
    workspace: Option<(PathBuf, Vec<PathBuf>)>,
}

impl RegistryBuilder {
    /// Starts with the defaults: the operator's policy, else the shipped policy; state in
    /// `$XDG_STATE_HOME/portcullis/in-process`; no mounts and no guests; `output_read` as the only tool.
    pub(crate) fn new() -> Self {
        Self {
            policy: None,
            expectations: None,
            state: None,
            cache: None,
            checkpoint_sink: None,
            mounts: None,
            runner: None,
            natives: Vec::new(),
            configured: Vec::new(),
            states: NativeStates::default(),
            hidden_examples: Vec::new(),
            capabilities: Vec::new(),
            hooks: Vec::new(),
            rule_writer: None,
            modules: Vec::new(),
            steps: Vec::new(),
            http_client: None,
            foreign: Vec::new(),
            refused: Vec::new(),
            late_tools: Vec::new(),
            shell: ShellSource::Nowhere,
            workspace: None,
        }
    }

    /// Adds a native tool. It runs in this process, outside the sandbox, so its calls are denied unless the
    /// policy enables it by name (`[tools.NAME] enabled = true`). `IntoTool` of `portcullis-adapters`
    /// converts tools that were written for another interface.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// Adds a native tool behind a pointer, as `IntoTool` of `portcullis-adapters` returns it.
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.natives.push((tool, ToolOrigin::Native));
        self
    }

    /// Adds an external tool. Its callers must set [`external_calls`](crate::Caller::external_calls).
    pub fn external_tool(self, tool: ExternalTool) -> Self {
        self.configured_tool(tool)
    }

    /// Adds a tool that a configuration describes: an HTTP tool, an external tool or an internal tool.
    pub fn configured_tool(mut self, tool: impl Into<ConfiguredTool>) -> Self {
        self.configured.push(tool.into());
        self
    }

    /// Adds the state that native tools take as `&State<T>`. The state lives as long as the registry, and all
    /// calls share it. A program that also uses the value itself passes an [`Arc`]. The build fails if a tool
    /// takes a state that was not added, or if two states of one type were added.
    pub fn tool_state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.add(value);
        self
    }

    /// Declares the names of tools that [`ToolRegistry::add_tool`] adds later, so that entries of the policy
    /// may name them. Without this declaration the build fails at such an entry, because it looks like a
    /// misspelt name.
    pub fn declare_late_tools(mut self, names: impl IntoIterator<Item = ToolName>) -> Self {
        self.late_tools.extend(names);
        self
    }

    /// Adds the shipped native tools: time, echo, arithmetic, and `failing_tool`.
    pub fn default_tools(mut self) -> Self {
        let shipped = native::default_tools().into_iter();
        self.natives.extend(shipped.map(|tool| (tool, ToolOrigin::ShippedNative)));
        self
    }

    /// Offers approvers a standing approval of commands: rules that this writer adds to the operator's
    /// policy. Default: no offer.
    pub fn rule_writer(mut self, writer: impl RuleWriter + 'static) -> Self {
        self.rule_writer = Some(Box::new(writer));
        self
    }

    /// Hides the tools of [`EXAMPLES`] from models, unless the policy enables a tool by name (`[tools.add] enabled =
    /// true`). Calls by name still find them.
    ///
    /// [`EXAMPLES`]: crate::native::EXAMPLES
    pub fn hide_examples(mut self) -> Self {
        self.hidden_examples = native::EXAMPLES.to_vec();
        self
    }

    /// Adds the shipped native tools with these names, unless they are already added, and offers them to models.
    pub fn shipped_tools(mut self, names: &[String]) -> Self {
        self.hidden_examples.retain(|example| !names.iter().any(|name| name == example));
        for tool in native::default_tools() {
            let name = tool.schema().name;
            let is_there = |(shipped, origin): &(Arc<dyn Tool>, ToolOrigin)| {
                *origin == ToolOrigin::ShippedNative && shipped.schema().name == name
            };
            if names.contains(&name) && !self.natives.iter().any(is_there) {
                self.natives.push((tool, ToolOrigin::ShippedNative));
            }
        }
        self
    }

    /// Adds the tools of a capability, unless they are already added. The build fails if the tools of the capability
    /// are not available.
    pub fn capability(mut self, capability: Capability) -> Self {
        self.capabilities.push(capability);
        self
    }

    /// Adds a hook for all calls. Hooks run in the order in which they were added.
    pub fn hook(mut self, hook: impl CallHook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Uses this policy.
    pub fn policy(mut self, policy: WorkspaceSecurityPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Keeps state in this folder, which must be outside every mount.
    pub fn state(mut self, folder: impl Into<PathBuf>) -> Self {
        self.state = Some(folder.into());
        self
    }

    /// Remembers the hash of this program in this folder, which several state folders may share.
    pub(crate) fn cache(mut self, folder: PathBuf) -> Self {
        self.cache = Some(folder);
        self
    }

    /// Sends the checkpoints of the audit log to this sink, unless the policy names another one.
    pub fn checkpoint_sink(mut self, sink: CheckpointSink) -> Self {
        self.checkpoint_sink = Some(sink);
        self
    }

    /// Uses these mounts and this runner for guests.
    pub fn guests(mut self, mounts: Arc<MountTable>, runner: HostWasmToolRunner) -> Self {
        self.mounts = Some(mounts);
        self.runner = Some(runner);
        self
    }

    /// Sets where the commands of `shell_exec` run. Default: nowhere. [`crate::runtime_builder`] sets the
    /// sidecar that the envelope names, if any.
    pub fn shell(mut self, source: ShellSource) -> Self {
        self.shell = source;
        self
    }

    /// Sets the host folder of the mounts, for a sidecar that this program starts, and adds `shell_exec`. No mount may
    /// touch the `private` host paths. [`crate::runtime_builder`] has already called this method.
    pub fn workspace(mut self, folder: impl Into<PathBuf>, private: Vec<PathBuf>) -> Self {
        self.workspace = Some((folder.into(), private));
        self
    }

    /// Adds the tools of a module: loads the module, queries its declarations, and adds its hash to the policy's
    /// digest. A foreign module is compiled in a separate process, unless an earlier start has compiled it.
    ///
    /// # Errors
    /// [`BootstrapError::Wasm`] if the module cannot be loaded or does not describe itself, or if
    /// [`RegistryBuilder::guests`] was not called before.
    ///
    /// # Cancellation
    /// A dropped future stops the module.
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

    /// Adds the tools of a module that is embedded in this program.
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

    /// Refuses to build under a policy that fails its expectations.
    pub(crate) fn expectations(mut self, expectations: Option<StartupExpectations>) -> Self {
        self.expectations = expectations;
        self
    }

    /// Sets how the host's HTTP client is started, and adds `web_fetch`. If the policy names a provider, adds
    /// `web_search` as well.
    pub(crate) fn requests(mut self, config: HttpClientConfig) -> Self {
        self.http_client = Some(config);
        self
    }

    /// Loads a foreign module and queries its declarations. [`Self::build`] decides which of its tools are
    /// registered, once all modules are known.
    pub(crate) async fn add_foreign(
        &mut self,
        name: String,
        wasm: &[u8],
        origin: ModuleOrigin,
    ) -> Result<(), WasmError> {
        let runner = self.runner.as_ref().ok_or(WasmError::NoRunner)?;
        let module = runner.load_foreign(wasm).await?;
        let declarations = runner.describe(&module).await?;
        self.foreign.push(ForeignModule { name, module, declarations, origin });
        Ok(())
    }

    /// Records that a module is refused, and why.
    pub(crate) fn refuse(&mut self, name: impl Into<String>, error: ModuleError) {
        self.refused.push(RefusedModule { name: name.into(), error, tools: Vec::new() });
    }

    /// Builds the registry.
    ///
    /// # Errors
    /// [`BootstrapError`]. Examples: a name is taken, a schema is unusable, the builder lacks a state that a
    /// tool takes, or the state folder or the audit log cannot be written.
    pub fn build(self) -> Result<ToolRegistry, BootstrapError> {
        let (policy, expected) = match self.policy {
            Some(policy) => (policy, self.expectations),
            None => installed_policy()?,
        };
        let state = self.state.or_else(state::default_folder).ok_or(BootstrapError::NoHome)?;
        state::prepare(&state)?;
        let pins = Pins::read(&state)?;

        let mut registration = Registration::new(&pins, policy.home());
        let mut hidden = self.hidden_examples;
        let is_added = |name: &str| self.capabilities.iter().any(|capability| capability.has_native(name));
        hidden.retain(|example| !policy.is_enabled_by_name(example) && !is_added(example));
        let states = self.states.complete(self.natives.iter().map(|(tool, _)| &**tool))?;
        registration.add_natives(self.natives, &hidden)?;
        registration.add_configured(self.configured, &policy)?;
        registration.add_capabilities(&self.capabilities)?;
        if let Some((workspace, private)) = self.workspace {
            let ca = self.http_client.as_ref().and_then(|http_client| http_client.ca.clone());
            let config = sidecar_options(&policy, &state, workspace, private, ca);
            registration.add_shell(ShellBackend::new(&self.shell, config), policy.shell())?;
        }
        registration.add_shipped_modules(self.modules)?;
        let has_steps = !self.steps.is_empty();
        let connection = self.http_client.clone();
        let http_client = self.http_client.map(|config| Arc::new(HttpClientHandle::new(config)));
        registration.add_operations(self.steps, http_client.as_ref(), (policy.search(), policy.notify()))?;
        let outputs = Arc::new(OutputStore::open(&state)?);
        let policy_and_tools = Arc::new(OnceLock::new());
        let labels = Arc::new(RunLabels::default());
        registration.add_output_read(
            &outputs,
            grant_checker(Arc::clone(&policy_and_tools)),
            output_labeler(Arc::clone(&labels), Arc::clone(&policy_and_tools)),
        )?;
        registration.ensure_capabilities(&self.capabilities)?;
        // Foreign modules come last, so that all shipped names are taken before a module claims one.
        registration.add_foreign_modules(self.foreign, self.refused)?;
        let Registration { mut tools, steps, refused, digests, .. } = registration;
        // Check before anything is opened for calls: a misspelt entry would restrict no tool.
        let mut names = known_tools(&tools, &steps, &pins, &refused);
        self.late_tools.iter().for_each(|name| names.add(name));
        let unused_entries = policy.check_tools(&names)?;
        if let Some(expected) = expected {
            expected.require(&policy, &names, &tools)?;
        }
        tools.record_lost_tools(missing_tools(&tools, &pins, &refused));

        let policy = Arc::new(policy.with_modules(digests));
        let audit = sealing::open_log(&state, &policy, self.checkpoint_sink, connection.as_ref())?;
        log_refusals(&refused);
        let cache = self.cache.unwrap_or_else(|| state.clone());
        process_start::set_process_start(&audit, &policy, cache, pins.sha256().map(str::to_owned));
        let tools = Arc::new(ServedTools::new(tools));
        // Set after all tools are registered and before any call. The cell is new, so this cannot fail.
        let _ = policy_and_tools
            .set(PolicyAndTools { policy: Arc::clone(&policy), tools: Arc::downgrade(&tools) });
        let host = Host {
            tools,
            mounts: self.mounts.unwrap_or_default(),
            audit: Arc::new(audit),
            outputs,
            undo: UndoStore::new(&state),
            runner: self.runner.map(Arc::new),
            slots: Arc::new(CallSlots::new(policy.limits().concurrency)),
            rates: Arc::new(Rates::new(policy.limits().calls_per_minute)),
            labels,
            http_client,
            hooks: Hooks::new(self.hooks),
            states,
            standing_approvals: self.rule_writer.map(|writer| Arc::new(StandingApprovals::new(writer))),
            operation_steps: None,
            policy,
        };
        let findings = BuildFindings { refused, unused_entries, known_tools: names, pins, state };
        Ok(ToolRegistry::new(host, has_steps.then_some(steps), findings))
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
    /// Builds a registry with only the shipped native tools, under the operator's policy or the shipped
    /// policy: `get_current_time`, `echo`, arithmetic, `failing_tool`, `output_read`.
    ///
    /// # Errors
    /// As in [`RegistryBuilder::build`].
    pub fn with_defaults() -> Result<Self, BootstrapError> {
        Self::builder().default_tools().build()
    }
}

/// Returns the settings of a sidecar that this program starts.
fn sidecar_options(
    policy: &WorkspaceSecurityPolicy,
    state: &Path,
    workspace: PathBuf,
    private: Vec<PathBuf>,
    ca: Option<PathBuf>,
) -> SidecarOptions {
    let (policy, state) = (Arc::new(policy.clone()), state.to_owned());
    SidecarOptions { policy, workspace, state, private_paths: private, ca, unconfined: false }
}

/// Whether the policy in force would still give the grant of a stored output: the output's tool can still be
/// called, and it gets every mount of that grant. A tool that is not registered gets nothing.
fn grant_checker(policy_and_tools: Arc<OnceLock<PolicyAndTools>>) -> IsStillGrantedFn {
    Arc::new(move |stored| {
        let Some(PolicyAndTools { policy, tools }) = policy_and_tools.get() else { return false };
        let Some(tools) = tools.upgrade() else { return false };
        let tools = tools.snapshot();
        let Some(stored) = StoredGrant::parse(stored) else { return false };
        let tool = tools.get(&stored.tool);
        let Some(Ok(now)) = tool.map(|tool| policy.assign(tool.descriptor())) else { return false };
        now.approval != Approval::Deny && stored.is_within(policy.mounts_of(&now.profile))
    })
}

/// Adds the labels of a stored output to the run that reads it. The output may come from another run or
/// process.
fn output_labeler(
    run_labels: Arc<RunLabels>,
    policy_and_tools: Arc<OnceLock<PolicyAndTools>>,
) -> AddOutputLabelsFn {
    Arc::new(move |ctx, stored| {
        let labels = StoredGrant::labels(stored);
        let (run_labels, policy_and_tools, call_id) =
            (Arc::clone(&run_labels), Arc::clone(&policy_and_tools), ctx.call_id.clone());
        let detached = || Caller::new(ctx.agent_id.clone(), ctx.run_id.clone()).owner();
        let owner =
            ctx.extensions.get::<NestingContext>().map_or_else(detached, |parent| parent.caller.owner());
        Box::pin(async move {
            let (Some(labels), Some(PolicyAndTools { policy, .. })) = (labels, policy_and_tools.get()) else {
                return Err(ToolError::internal("a stored output does not state its origin"));
            };
            Ok(run_labels.add_stored_output_labels(&owner, &call_id, &labels, policy).await?)
        })
    })
}
