//! [`ToolRegistry`]: the tools, and the only way to call them.

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
    audit::{AuditError, AuditLog, CallRecord, ModelEnding, PolicyChange, PolicyChangeCause, Record},
    builder::RegistryBuilder,
    call::Caller,
    configured_tool::ConfiguredTool,
    external::ExternalTool,
    modules::{Pins, RefusedModule},
    native::ensure_given,
    pipeline::{
        Host, LateResult, PendingRecord, admit, authorize, check, record, resolve, run, run_after_hooks,
        shape, take_late_result,
    },
    process_facts,
    registered::RegisteredTool,
    sandbox::{HostWasmToolRunner, mounts::MountTable},
    shell::ShellBackend,
    table::{ServedTools, ToolTable},
};

pub use error::{NameHolder, RegistryError};

/// Tools behind one pipeline. [`ToolRegistry::execute_with_policy`] is the only way to a tool of any kind.
#[derive(Debug)]
pub struct ToolRegistry {
    host: Host,
    findings: Arc<BuildFindings>,
}

/// The findings of a registry's build. Listings and approvals use them, calls do not.
#[derive(Debug)]
pub(crate) struct BuildFindings {
    pub(crate) refused: Vec<RefusedModule>,
    /// Policy entries whose tools are absent, which is not a fault here.
    pub(crate) unused_entries: Vec<PolicyFault>,
    /// The names of tools that a policy and its expectations may use.
    pub(crate) known: KnownTools,
    pub(crate) pins: Pins,
    pub(crate) state: PathBuf,
}

impl ToolRegistry {
    /// A builder with the defaults: the operator's policy (`/etc/portcullis/portcullis.toml`, else
    /// `$XDG_CONFIG_HOME/portcullis/portcullis.toml`, else the shipped policy); state in
    /// `$XDG_STATE_HOME/portcullis/in-process`; no mounts and no guests; `output_read` as the only tool.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder::new()
    }

    /// The registry of this host. Operations call their steps through a separate registry.
    pub(crate) fn new(mut host: Host, steps: Option<ToolTable>, findings: BuildFindings) -> Self {
        let findings = Arc::new(findings);
        host.operation_steps = steps
            .map(|steps| Arc::new(Self { host: host.step_host(steps), findings: Arc::clone(&findings) }));
        Self { host, findings }
    }

    /// A registry with the same tools, to which further tools can be added only for some callers. Everything else is
    /// shared: policy, mounts, audit log, slots, rates, and the labels of runs.
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
    /// Dropping the future or cancelling `caller.cancel` stops the tool, and the row says `cancelled`.
    pub async fn execute_with_policy(&self, call: ToolCall, caller: &Caller) -> ToolResult {
        let host = &self.host;
        let mut pending_record = self.new_record(&call, caller);
        // The first error ends the steps in this block. It is still shaped and recorded below.
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

    /// Lets the late result of a pending call into this caller's run. It passes the hooks, is bounded like every
    /// result, gives the run its label, and leaves a row `result`. A result of a tool that is gone, or that the policy
    /// denies now, is an error.
    #[must_use = "the model must get the result"]
    pub async fn take_late_result(&self, late: LateResult, caller: &Caller) -> ToolResult {
        let call =
            ToolCall { id: late.id.clone(), tool: late.tool.clone(), arguments: late.arguments.clone() };
        let pending_record = self.new_record(&call, caller);
        take_late_result(late, &self.host, caller, pending_record).await
    }

    /// Records a request to a model, in the run of this caller.
    ///
    /// # Errors
    /// As in [`AuditLog::append`].
    pub fn record_model(&self, caller: &Caller, ending: ModelEnding) -> Result<(), AuditError> {
        let call = CallRecord {
            run_id: Some(caller.run_id.as_str().into()),
            agent: Some(caller.agent_id.as_str().into()),
            policy_digest: Some(self.host.policy.digest().as_str().into()),
            ..CallRecord::default()
        };
        self.host.audit.append(&Record::model(&Arc::new(call), ending)).map(drop)
    }

    /// Records a call that the agent loop refused before the pipeline, and returns the refusal as the call's result.
    /// Examples of a reason: the model's answer was cut off in the call, the user wrote before the call started, or the
    /// call was cancelled before its start. The call leaves a row like every call, and does not run.
    #[must_use = "the model must get the result"]
    pub fn refuse(&self, call: ToolCall, caller: &Caller, error: ToolError) -> ToolResult {
        let mut pending_record = self.new_record(&call, caller);
        // This only adds the tool's facts to the row. The refusal is already decided, so an error is ignored.
        let _ = resolve(call, &self.host, caller, &mut pending_record);
        record(shape(Err(error), &self.host, caller, &pending_record), caller, pending_record)
    }

    /// Ends the shell sessions of this caller's run, with all their processes, and forgets what the run's calls have
    /// read (see `[[flow]]` of the policy). Call this when the run has ended. Later calls with the same run id belong
    /// to a new run.
    ///
    /// The method does not wait. A command that still runs keeps its session until its call ends.
    pub fn end_run(&self, caller: &Caller) {
        self.host.labels.end_run(&caller.owner());
        for tool in self.tools() {
            if let Some(sidecar) = tool.shell_backend().and_then(ShellBackend::sidecar) {
                sidecar.end_run(&caller.owner());
            }
        }
    }

    /// The kept changes of calls, and the mounts with `undo` that they were made in.
    #[must_use]
    pub fn kept_changes(&self) -> (UndoStore, Vec<MountRoot>) {
        let with_undo = self.host.policy.mounts().iter().filter(|mount| mount.has_undo);
        let roots = with_undo.filter_map(|mount| {
            let handle = self.host.mounts.get(mount.name.as_str())?;
            Some(MountRoot::new(mount.name.as_str(), Arc::clone(handle.directory())))
        });
        (self.host.undo.clone(), roots.collect())
    }

    /// The labels of this caller's run: what its calls have read so far, running calls included, each with the id of
    /// the call that brought it. A program that stores a run to continue it later stores its labels too.
    #[must_use]
    pub fn run_labels(&self, caller: &Caller) -> BTreeMap<FlowLabel, String> {
        Arc::unwrap_or_clone(self.host.labels.facts(caller).labels)
    }

    /// Adds labels to this caller's run before its first call: those of [`ToolRegistry::run_labels`] if the run began
    /// in another process, or labels of data that reached the model by other means than a call. Without them, a rule of
    /// `[[flow]]` would forget what the run has read.
    pub fn add_run_labels(&self, caller: &Caller, labels: impl IntoIterator<Item = (FlowLabel, String)>) {
        self.host.labels.add_labels(&caller.owner(), labels);
    }

    /// Takes over the runs of a registry that this one replaces. Calls may still run in the old one. From now on both
    /// registries share the labels of runs, including those of calls that still run in the old one. Responses stay free
    /// of every secret that either registry has read.
    pub fn continue_runs_of(&self, other: &Self) {
        self.host.labels.share_with(&other.host.labels);
        if let (Some(own_client), Some(other_client)) = (&self.host.http_client, &other.host.http_client) {
            own_client.known().share_with(other_client.known());
        }
    }

    /// The tools at this moment, sorted by name.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<RegisteredTool>> {
        self.host.tools.snapshot().iter().cloned().collect()
    }

    /// The tools to show to a model at this moment, sorted by name. Left out are tools that the policy denies, tools
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

    /// Adds a native tool, as [`RegistryBuilder::tool`] does, while the registry serves. Calls find the tool from now
    /// on. An entry of the policy can name the tool only if the builder [awaits it](RegistryBuilder::awaits). Without
    /// an entry that enables the tool, its calls are denied.
    ///
    /// # Errors
    /// [`RegistryError`] if a name is invalid or taken, if a schema is unusable, or if the tool takes a state that the
    /// builder was not given. Nothing changes then.
    pub fn add_tool(&self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        ensure_given(&*tool, &self.host.states)?;
        let tool = RegisteredTool::native(tool, ToolOrigin::Native)?;
        self.host.tools.change(|tools| tools.add(tool))
    }

    /// Adds a tool whose results are submitted from outside, while the registry serves. As for [`Self::add_tool`], an
    /// entry of the policy can name it only if the builder [awaits it](RegistryBuilder::awaits).
    ///
    /// # Errors
    /// [`RegistryError`] if a name is invalid or taken, or if a schema is unusable. Nothing changes then.
    pub fn add_external_tool(&self, tool: ExternalTool) -> Result<(), RegistryError> {
        self.add_configured_tool(tool)
    }

    /// Adds a tool that a configuration describes, while the registry serves. As for [`Self::add_tool`], an entry of
    /// the policy can name it only if the builder [awaits it](RegistryBuilder::awaits).
    ///
    /// # Errors
    /// [`RegistryError`] if a name is invalid or taken, if a schema is unusable, or if the policy refuses the address
    /// of an HTTP tool. Nothing changes then.
    pub fn add_configured_tool(&self, tool: impl Into<ConfiguredTool>) -> Result<(), RegistryError> {
        let tool = RegisteredTool::configured(tool.into(), &self.host.policy)?;
        self.host.tools.change(|tools| tools.add(tool))
    }

    /// Adds a built-in tool of the gateway. The policy knows these tools by name, so they need no entry, and an entry
    /// can name them.
    ///
    /// # Errors
    /// [`RegistryError::NotShipped`] for a name that the policy does not know as the gateway's, and as for
    /// [`Self::add_tool`].
    pub fn add_gateway_tool(&self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let name = tool.schema().name;
        let origin = gateway_tool_origin(&name).ok_or(RegistryError::NotShipped { name })?;
        let tool = RegisteredTool::native(tool, origin)?;
        self.host.tools.change(|tools| tools.add(tool))
    }

    /// Removes a tool of the embedding program, by its name. Calls of it that run end normally, and later calls do not
    /// find it. `None` if the program has no tool with this name.
    #[must_use = "a name that is not a tool of the program removes nothing"]
    pub fn remove_tool(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        // Check and removal are one change of the table, so no other change comes between them.
        let remove = |tools: &mut ToolTable| {
            let is_added = tools.get(name).is_some_and(|tool| tool.facts().origin.is_added_by_program());
            if is_added { tools.remove(name).ok_or(()) } else { Err(()) }
        };
        self.host.tools.change(remove).ok()
    }

    /// Follows the changes of the tools from this moment on.
    #[must_use]
    pub fn changes(&self) -> ToolChanges {
        ToolChanges(self.host.tools.changes())
    }

    /// Why no call of a tool can run in this process, even if the policy allows it: there is no shell, or no runner of
    /// guests. `None` if calls can run.
    #[must_use]
    pub fn unavailable_reason<'t>(&self, tool: &'t RegisteredTool) -> Option<&'t str> {
        tool.backend().unavailable_reason(&self.host)
    }

    /// The tool with this name or alias.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        self.host.tools.snapshot().get(name).cloned()
    }

    /// Warnings about policy entries whose tools are absent. They are not faults.
    #[must_use]
    pub fn unused_entries(&self) -> &[PolicyFault] {
        &self.findings.unused_entries
    }

    /// The names of tools that a policy and its expectations may use: even those of modules that cannot be used.
    #[must_use]
    pub fn known_tools(&self) -> &KnownTools {
        &self.findings.known
    }

    /// The foreign modules that were refused, and why.
    #[must_use]
    pub fn refused_modules(&self) -> &[RefusedModule] {
        &self.findings.refused
    }

    /// The policy's assignment to a tool. Its approval is the strictest one of the tool and its steps.
    ///
    /// # Errors
    /// The denial that every call of the tool would get, because the policy refuses the tool or one of its steps.
    pub fn assignment(
        &self,
        tool: &RegisteredTool,
    ) -> Result<ToolAssignment, Box<portcullis_policy::Denial>> {
        let mut assignment = self.host.policy.assign(tool.facts()).map_err(Box::new)?;
        for step in tool.steps() {
            let step = self.host.policy.assign(step.facts()).map_err(Box::new)?;
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

    /// The proven posture of the HTTP client's threads, which are started if they do not run yet. `None` if no profile
    /// of the policy has hosts, or if this registry makes no requests.
    ///
    /// # Errors
    /// `unavailable`, with the reason for the operator. No request is made then.
    pub async fn egress_posture(&self) -> Option<Result<Posture, ToolError>> {
        let http_client = self.host.http_client.as_ref().filter(|_| self.host.policy.has_network())?;
        Some(http_client.client().await.map(|client| client.posture().clone()))
    }

    /// Records that this registry has taken the place of another one in a running process, after a hangup (SIGHUP). The
    /// row has both policies. If they are the same, nothing is recorded.
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
            uid: process_facts::own_uid(),
            refused: None,
        };
        self.host.audit.record_policy_change(&change).map(drop)
    }

    /// Records that a running process was asked to reload, and keeps this registry because the new policy or a module
    /// is refused.
    ///
    /// # Errors
    /// As in [`AuditLog::append`].
    pub fn record_refused_reload(&self, reason: &str) -> Result<(), AuditError> {
        let old_digest = Some(self.policy().digest().as_str());
        let change = process_facts::refusal(PolicyChangeCause::Hangup, old_digest, reason);
        self.host.audit.record_policy_change(&change).map(drop)
    }

    /// The findings of the registry's build.
    pub(crate) fn findings(&self) -> &BuildFindings {
        &self.findings
    }

    fn new_record(&self, call: &ToolCall, caller: &Caller) -> PendingRecord {
        let row = CallRecord {
            call_id: call.id.as_str().into(),
            run_id: Some(caller.run_id.as_str().into()),
            agent: Some(caller.agent_id.as_str().into()),
            operation_id: caller.operation_id.as_deref().map(Into::into),
            tool: call.tool.as_str().into(),
            policy_digest: Some(self.host.policy.digest().as_str().into()),
            ..CallRecord::default()
        };
        PendingRecord::new(Arc::clone(&self.host.audit), row)
    }
}

/// The changes of a registry's tools, from [`ToolRegistry::changes`].
#[derive(Debug, Clone)]
pub struct ToolChanges(watch::Receiver<Arc<ToolTable>>);

impl ToolChanges {
    /// Whether tools were added or removed since this value was created, or since the last [`ToolChanges::changed`].
    /// Always `false` after the registry is dropped.
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
