//! [`ToolRegistry`]: all tools, and the only way to call them.

mod error;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use portcullis_confine::Posture;
use portcullis_policy::{
    Approval, FlowLabel, KnownTools, PolicyFault, ToolAssignment, ToolOrigin, WorkspaceSecurityPolicy,
    gateway_tool_origin,
};
use portcullis_types::{Tool, ToolCall, ToolError, ToolResult};
use portcullis_undo::{MountRoot, UndoStore};
use tokio::sync::watch;

use crate::{
    audit::{AuditError, AuditLog, ModelEnd, NewRow, PolicyChange, PolicyChangeCause, RowFields},
    builder::RegistryBuilder,
    call::Caller,
    configured_tool::ConfiguredTool,
    external::ExternalTool,
    modules::{Pins, RefusedModule},
    native::ensure_states_added,
    pipeline::{
        Host, LateResult, PendingRecord, admit, authorize, check, record, resolve, run, run_after_hooks,
        shape, take_late_result,
    },
    process_start,
    registered::RegisteredTool,
    sandbox::{HostWasmToolRunner, mounts::MountTable},
    shell::ShellBackend,
    tool_table::{ServedTools, ToolTable},
};

pub use error::{NameHolder, RegistryError};

/// All tools, behind one pipeline. [`ToolRegistry::execute_with_policy`] is the only way to call a tool.
#[derive(Debug)]
pub struct ToolRegistry {
    host: Host,
    findings: Arc<BuildFindings>,
}

/// The results of a registry's build. Listings and approvals use them; calls do not.
#[derive(Debug)]
pub(crate) struct BuildFindings {
    pub(crate) refused: Vec<RefusedModule>,
    /// Policy entries whose tools do not exist, which is not an error here.
    pub(crate) unused_entries: Vec<PolicyFault>,
    /// The tool names that a policy and its expectations may use.
    pub(crate) known_tools: KnownTools,
    pub(crate) pins: Pins,
    pub(crate) state: PathBuf,
}

impl ToolRegistry {
    /// Returns a builder with the defaults: the operator's policy (`/etc/portcullis/portcullis.toml`, else
    /// `$XDG_CONFIG_HOME/portcullis/portcullis.toml`, else the shipped policy); state in
    /// `$XDG_STATE_HOME/portcullis/in-process`; no mounts and no guests; `output_read` as the only tool.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder::new()
    }

    /// Creates the registry of this host. Operations call their steps through a separate registry.
    pub(crate) fn new(mut host: Host, steps: Option<ToolTable>, findings: BuildFindings) -> Self {
        let findings = Arc::new(findings);
        host.operation_steps = steps
            .map(|steps| Arc::new(Self { host: host.step_host(steps), findings: Arc::clone(&findings) }));
        Self { host, findings }
    }

    /// Returns a registry with the same tools, to which more tools can be added for some callers only.
    /// Everything else is shared: policy, mounts, audit log, slots, rate limits, and the labels of runs.
    #[must_use]
    pub fn fork(&self) -> Self {
        let tools = ToolTable::clone(&self.host.tools.snapshot());
        let host = Host { tools: Arc::new(ServedTools::new(tools)), ..self.host.clone() };
        Self { host, findings: Arc::clone(&self.findings) }
    }

    /// Calls a tool: resolve, check, admit, authorize, run, shape, record. The audit row is written before the result
    /// is returned.
    ///
    /// # Cancellation
    /// Dropping the future or cancelling `caller.cancel` stops the tool, and the row records `cancelled`.
    pub async fn execute_with_policy(&self, call: ToolCall, caller: &Caller) -> ToolResult {
        let host = &self.host;
        let mut pending_record = self.new_record(&call, caller);
        // The first error skips the remaining steps of this block. It is still shaped and recorded below.
        let outcome = async {
            let resolved = resolve(call, host, caller, &mut pending_record)?;
            let checked = check(resolved, host, caller, &mut pending_record).await?;
            let admitted = admit(checked, host, caller, &mut pending_record)?;
            let authorized = authorize(admitted, host, caller, &mut pending_record).await?;
            run(authorized, host, caller, &mut pending_record).await
        }
        .await;
        let outcome = run_after_hooks(outcome, host, caller).await;
        let shaped = shape(outcome, host, caller, &pending_record);
        record(shaped, caller, pending_record)
    }

    /// Accepts the late result of a pending call into this caller's run. The result passes the hooks, is
    /// truncated like every result, adds its label to the run, and gets a `result` row. If its tool no longer
    /// exists or the policy denies it at present, the result is an error.
    #[must_use = "the model must get the result"]
    pub async fn take_late_result(&self, late: LateResult, caller: &Caller) -> ToolResult {
        let call =
            ToolCall { id: late.id.clone(), tool: late.tool.clone(), arguments: late.arguments.clone() };
        let pending_record = self.new_record(&call, caller);
        take_late_result(late, &self.host, caller, pending_record).await
    }

    /// Records a request to a model in this caller's run.
    ///
    /// # Errors
    /// As in [`AuditLog::append`].
    pub fn record_model(&self, caller: &Caller, ending: ModelEnd) -> Result<(), AuditError> {
        let call = RowFields {
            run_id: Some(caller.run_id.as_str().into()),
            agent: Some(caller.agent_id.as_str().into()),
            policy_digest: Some(self.host.policy.digest().as_str().into()),
            ..RowFields::default()
        };
        self.host.audit.append(&NewRow::model(&Arc::new(call), ending)).map(drop)
    }

    /// Records a call that the agent loop refused before the pipeline, and returns the refusal as the
    /// call's result. For example, the model's answer was cut off inside the call, the user wrote before
    /// the call started, or the call was cancelled before it started. The call gets a row like every
    /// call, and does not run.
    #[must_use = "the model must get the result"]
    pub fn refuse(&self, call: ToolCall, caller: &Caller, error: ToolError) -> ToolResult {
        let mut pending_record = self.new_record(&call, caller);
        // This only adds the tool's facts to the row. The call is refused in any case, so ignore an error.
        let _ = resolve(call, &self.host, caller, &mut pending_record);
        record(shape(Err(error), &self.host, caller, &pending_record), caller, pending_record)
    }

    /// Ends the shell sessions of this caller's run, with all their processes, and forgets the labels of its
    /// data (see `[[flow]]` of the policy). Call this when the run has ended. Later calls with the same run
    /// id belong to a new run.
    ///
    /// The method does not block. A running command keeps its session until its call ends.
    pub fn end_run(&self, caller: &Caller) {
        self.host.labels.end_run(&caller.owner());
        for tool in self.tools() {
            if let Some(sidecar) = tool.shell_backend().and_then(ShellBackend::sidecar) {
                sidecar.end_run(&caller.owner());
            }
        }
    }

    /// Returns the recorded changes of calls, and the mounts with `undo` in which they were made.
    #[must_use]
    pub fn undo_store_and_roots(&self) -> (UndoStore, Vec<MountRoot>) {
        let with_undo = self.host.policy.mounts().iter().filter(|mount| mount.has_undo);
        let roots = with_undo.filter_map(|mount| {
            let handle = self.host.mounts.get(mount.name.as_str())?;
            Some(MountRoot::new(mount.name.as_str(), Arc::clone(handle.directory())))
        });
        (self.host.undo.clone(), roots.collect())
    }

    /// Returns the labels of this caller's run: the data that its calls have read so far, including running
    /// calls, each with the id of the call that added it. A program that stores a run to resume it later must
    /// store its labels too.
    #[must_use]
    pub fn run_labels(&self, caller: &Caller) -> BTreeMap<FlowLabel, String> {
        Arc::unwrap_or_clone(self.host.labels.context(caller).labels)
    }

    /// Adds labels to this caller's run before its first call: the labels of [`ToolRegistry::run_labels`] if
    /// the run started in another process, or labels of data that reached the model other than by a call.
    /// Without them, `[[flow]]` rules would not apply to that data.
    pub fn add_run_labels(&self, caller: &Caller, labels: impl IntoIterator<Item = (FlowLabel, String)>) {
        self.host.labels.add_labels(&caller.owner(), labels);
    }

    /// Takes over the runs of a registry that this one replaces. From this call on, both registries share the
    /// labels of runs, including those of calls that still run in the old one. Secrets that either registry
    /// has read are redacted from responses.
    pub fn continue_runs_of(&self, other: &Self) {
        self.host.labels.share_with(&other.host.labels);
        if let (Some(own_client), Some(other_client)) = (&self.host.http_client, &other.host.http_client) {
            own_client.known_secrets().share_with(other_client.known_secrets());
        }
    }

    /// Returns the current tools, sorted by name.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<RegisteredTool>> {
        self.host.tools.snapshot().iter().cloned().collect()
    }

    /// Returns the tools to offer to a model, sorted by name. This omits tools that the policy denies, tools
    /// that cannot run here, and tools that their author hides.
    #[must_use]
    pub fn offered(&self) -> Vec<Arc<RegisteredTool>> {
        let is_allowed = |tool: &RegisteredTool| {
            self.assignment(tool).is_ok_and(|assigned| assigned.approval != Approval::Deny)
        };
        let mut tools = self.tools();
        tools.retain(|tool| {
            !tool.meta().hidden && self.unavailable_reason(tool).is_none() && is_allowed(tool)
        });
        tools
    }

    /// Adds a native tool at run time, as [`RegistryBuilder::tool`] does. Calls can use it immediately. An
    /// entry of the policy can name the tool only if the builder [declares it](RegistryBuilder::declare_late_tools).
    /// Without an entry that enables the tool, its calls are denied.
    ///
    /// # Errors
    /// [`RegistryError`] if a name is invalid or taken, if a schema is unusable, or if the tool takes a state
    /// that was not added to the builder. Then nothing changes.
    pub fn add_tool(&self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        ensure_states_added(&*tool, &self.host.states)?;
        let tool = RegisteredTool::native(tool, ToolOrigin::Native)?;
        self.host.tools.change(|tools| tools.add(tool))
    }

    /// Adds a tool whose results are submitted from outside, at run time. As for [`Self::add_tool`], an entry
    /// of the policy can name it only if the builder [declares it](RegistryBuilder::declare_late_tools).
    ///
    /// # Errors
    /// [`RegistryError`] if a name is invalid or taken, or if a schema is unusable. Then nothing changes.
    pub fn add_external_tool(&self, tool: ExternalTool) -> Result<(), RegistryError> {
        self.add_configured_tool(tool)
    }

    /// Adds a tool that a configuration describes, at run time. As for [`Self::add_tool`], an entry of the
    /// policy can name it only if the builder [declares it](RegistryBuilder::declare_late_tools).
    ///
    /// # Errors
    /// [`RegistryError`] if a name is invalid or taken, if a schema is unusable, or if the policy refuses the
    /// URL of an HTTP tool. Then nothing changes.
    pub fn add_configured_tool(&self, tool: impl Into<ConfiguredTool>) -> Result<(), RegistryError> {
        let tool = RegisteredTool::configured(tool.into(), &self.host.policy)?;
        self.host.tools.change(|tools| tools.add(tool))
    }

    /// Adds a built-in tool of the gateway. The policy knows these tools by name, so they need no entry,
    /// although an entry may name them.
    ///
    /// # Errors
    /// [`RegistryError::NotShipped`] if the name is not a built-in tool of the gateway, otherwise as for
    /// [`Self::add_tool`].
    pub fn add_gateway_tool(&self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let name = tool.schema().name;
        let origin = gateway_tool_origin(&name).ok_or(RegistryError::NotShipped { name })?;
        let tool = RegisteredTool::native(tool, origin)?;
        self.host.tools.change(|tools| tools.add(tool))
    }

    /// Removes a tool of the embedding program by name. Calls in flight complete normally, and later calls do
    /// not find the tool. `None` if the program has no tool with this name.
    #[must_use = "a name that is not a tool of the program removes nothing"]
    pub fn remove_tool(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        // Check and removal are one change of the table, so they cannot race with another change.
        let remove = |tools: &mut ToolTable| {
            let is_added = tools.get(name).is_some_and(|tool| tool.descriptor().origin.is_added_by_program());
            if is_added { tools.remove(name).ok_or(()) } else { Err(()) }
        };
        self.host.tools.change(remove).ok()
    }

    /// Watches the changes of the tools from this call on.
    #[must_use]
    pub fn changes(&self) -> ToolChanges {
        ToolChanges(self.host.tools.changes())
    }

    /// Why no call of a tool can run in this process even if the policy allows it: there is no shell, or no
    /// runner for guests. `None` if calls can run.
    #[must_use]
    pub fn unavailable_reason<'t>(&self, tool: &'t RegisteredTool) -> Option<&'t str> {
        tool.backend().unavailable_reason(&self.host)
    }

    /// Returns the tool with this name or alias.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        self.host.tools.snapshot().get(name).cloned()
    }

    /// Warnings about policy entries whose tools do not exist. They are not errors.
    #[must_use]
    pub fn unused_entries(&self) -> &[PolicyFault] {
        &self.findings.unused_entries
    }

    /// The tool names that a policy and its expectations may use, including tools of unusable modules.
    #[must_use]
    pub fn known_tools(&self) -> &KnownTools {
        &self.findings.known_tools
    }

    /// The foreign modules that were refused, and why.
    #[must_use]
    pub fn refused_modules(&self) -> &[RefusedModule] {
        &self.findings.refused
    }

    /// Returns the policy's settings for a tool. The approval is the strictest one of the tool and its steps.
    ///
    /// # Errors
    /// The denial that every call of the tool would get, because the policy refuses the tool
    /// or one of its steps.
    pub fn assignment(
        &self,
        tool: &RegisteredTool,
    ) -> Result<ToolAssignment, Box<portcullis_policy::Denial>> {
        let mut assignment = self.host.policy.assign(tool.descriptor()).map_err(Box::new)?;
        for step in tool.steps() {
            let step = self.host.policy.assign(step.descriptor()).map_err(Box::new)?;
            assignment.approval = assignment.approval.max(step.approval);
        }
        Ok(assignment)
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &WorkspaceSecurityPolicy {
        &self.host.policy
    }

    /// The open mounts.
    #[must_use]
    pub fn mounts(&self) -> &MountTable {
        &self.host.mounts
    }

    /// The audit log.
    #[must_use]
    pub fn audit(&self) -> &AuditLog {
        &self.host.audit
    }

    /// The runner of guests, if there is one.
    #[must_use]
    pub fn runner(&self) -> Option<&HostWasmToolRunner> {
        self.host.runner.as_deref()
    }

    /// Starts the threads of the HTTP client if necessary, and returns their proven posture. `None` if no
    /// profile of the policy has hosts, or if this registry makes no requests.
    ///
    /// # Errors
    /// `unavailable`, with the reason for the operator. Then no request is made.
    pub async fn egress_posture(&self) -> Option<Result<Posture, ToolError>> {
        let http_client = self.host.http_client.as_ref().filter(|_| self.host.policy.has_network())?;
        Some(http_client.egress().await.map(|client| client.posture().clone()))
    }

    /// Records that this registry has replaced another one in a running process, after a hangup (SIGHUP). The
    /// row names both policies. If they are the same, nothing is recorded.
    ///
    /// # Errors
    /// As in [`AuditLog::append`].
    pub fn record_reload(&self, before: &Self) -> Result<(), AuditError> {
        let (old_digest, new_digest) = (before.policy().digest(), self.policy().digest());
        if old_digest == new_digest {
            return Ok(());
        }
        let change = PolicyChange {
            old_digest: Some(old_digest.as_str().into()),
            new_digest: Some(new_digest.as_str().into()),
            cause: PolicyChangeCause::Hangup,
            uid: process_start::own_uid(),
            refused: None,
        };
        self.host.audit.record_policy_change(&change).map(drop)
    }

    /// Records that a running process was asked to reload, but keeps this registry because the new policy or
    /// a module was refused.
    ///
    /// # Errors
    /// As in [`AuditLog::append`].
    pub fn record_refused_reload(&self, reason: &str) -> Result<(), AuditError> {
        let old_digest = Some(self.policy().digest().as_str());
        let change = process_start::refusal(PolicyChangeCause::Hangup, old_digest, reason);
        self.host.audit.record_policy_change(&change).map(drop)
    }

    /// The results of the registry's build.
    pub(crate) fn findings(&self) -> &BuildFindings {
        &self.findings
    }

    fn new_record(&self, call: &ToolCall, caller: &Caller) -> PendingRecord {
        let row = RowFields {
            call_id: call.id.as_str().into(),
            run_id: Some(caller.run_id.as_str().into()),
            agent: Some(caller.agent_id.as_str().into()),
            operation_id: caller.operation_id.as_deref().map(Into::into),
            tool: call.tool.as_str().into(),
            policy_digest: Some(self.host.policy.digest().as_str().into()),
            ..RowFields::default()
        };
        PendingRecord::new(Arc::clone(&self.host.audit), row)
    }
}

/// A watcher of a registry's tools, from [`ToolRegistry::changes`].
#[derive(Debug, Clone)]
pub struct ToolChanges(watch::Receiver<Arc<ToolTable>>);

impl ToolChanges {
    /// Whether tools were added or removed since this value was created, or since [`ToolChanges::changed`]
    /// last returned. Always `false` after the registry is dropped.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    /// Waits until tools are added or removed. Never returns after the registry is dropped.
    ///
    /// # Cancellation
    /// Safe: no change is lost.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
