//! [`ToolRegistry`]: the tools, and the only way to call them.

use std::{fmt, path::PathBuf, sync::Arc};

use portcullis_confine::Posture;
use portcullis_policy::{
    Approval, InvalidHostRule, PolicyFault, ToolAssignment, ToolOrigin, WorkspaceSecurityPolicy,
};
use portcullis_types::{
    InvalidToolName, Tool, ToolCall, ToolError, ToolName, ToolResult, escape_for_display,
};
use thiserror::Error;
use tokio::sync::watch;

use crate::{
    arguments::SchemaError,
    audit::{AuditLog, CallRecord},
    builder::RegistryBuilder,
    call::Caller,
    modules::{Lock, RefusedModule},
    native::Capability,
    pipeline::{Host, PendingRecord, admit, authorize, check, record, resolve, run, run_after_hooks, shape},
    registered::RegisteredTool,
    sandbox::{HostWasmToolRunner, mounts::MountTable},
    shell::ShellBackend,
    table::ToolTable,
};

/// Tools behind one pipeline. [`ToolRegistry::execute_with_policy`] is the only way to a tool of any kind.
#[derive(Debug)]
pub struct ToolRegistry {
    host: Host,
    findings: Arc<BuildFindings>,
}

/// The findings of building a registry: for listings and approvals, not for calls.
#[derive(Debug)]
pub(crate) struct BuildFindings {
    pub(crate) refused: Vec<RefusedModule>,
    /// Policy entries whose tools are absent, without being a fault.
    pub(crate) idle: Vec<PolicyFault>,
    pub(crate) lock: Lock,
    pub(crate) state: PathBuf,
}

impl ToolRegistry {
    /// A builder with the defaults: the operator's policy (`/etc/portcullis/portcullis.toml`, else
    /// `$XDG_CONFIG_HOME/portcullis/portcullis.toml`, else the shipped one); state in
    /// `$XDG_STATE_HOME/portcullis/in-process`; no mounts, no guests, no tools but `output_read`.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder::new()
    }

    /// The registry of this host. Operations call their steps in a separate registry.
    pub(crate) fn new(mut host: Host, steps: Option<ToolTable>, findings: BuildFindings) -> Self {
        let findings = Arc::new(findings);
        host.operation_steps =
            steps.map(|steps| Arc::new(Self { host: host.of_steps(steps), findings: Arc::clone(&findings) }));
        Self { host, findings }
    }

    /// Calls a tool: resolve, check, admit, authorize, run, shape, record (specification 004, "Execution
    /// Pipeline"). The audit row is on record before the result is returned.
    ///
    /// # Cancellation
    /// Dropping the future or firing `caller.cancel` stops the tool, and the row says `cancelled`.
    pub async fn execute_with_policy(&self, call: ToolCall, caller: &Caller) -> ToolResult {
        let host = &self.host;
        let mut pending = self.pending(&call, caller);
        let outcome = async {
            let resolved = resolve(call, host, caller, &mut pending)?;
            let checked = check(resolved, host, caller, &mut pending).await?;
            let gated = admit(checked, host, caller, &mut pending)?;
            let authorized = authorize(gated, host, caller, &mut pending).await?;
            run(authorized, host, caller, &mut pending).await
        }
        .await;
        let outcome = run_after_hooks(outcome, host, caller).await;
        let shaped = shape(outcome, host, caller, &pending);
        record(shaped, caller, pending)
    }

    /// Records a call that the agent loop refused before it reached the pipeline, and returns the refusal as
    /// its result: the answer with the call was cut off, a person spoke in between, or the call was given up
    /// before it began. The call leaves a row like every call, and does not run.
    #[must_use = "the model is to be told"]
    pub fn refuse(&self, call: ToolCall, caller: &Caller, error: ToolError) -> ToolResult {
        let mut pending = self.pending(&call, caller);
        // Only for the tool's facts in the row; the refusal is decided already, so an error is ignored.
        let _ = resolve(call, &self.host, caller, &mut pending);
        record(shape(Err(error), &self.host, caller, &pending), caller, pending)
    }

    /// Ends the shell sessions of this caller's run, with all their processes, and forgets what its calls have
    /// read (see `[[flow]]` of the policy). Call it when the run is over; later calls under its id are a new run.
    ///
    /// Does not wait. A command that still runs keeps its session until its call ends.
    pub fn end_run(&self, caller: &Caller) {
        self.host.labels.end_run(&caller.owner());
        for tool in self.tools() {
            if let Some(sidecar) = tool.shell_backend().and_then(ShellBackend::sidecar) {
                sidecar.end_run(&caller.owner());
            }
        }
    }

    /// Goes on where another registry stops: what runs have read under it counts under this one, also what calls
    /// read that still run there. Responses stay clean of each secret that either has read. For a registry that takes
    /// another's place while its callers go on.
    pub fn continue_runs_of(&self, other: &Self) {
        self.host.labels.share_with(&other.host.labels);
        if let (Some(client), Some(others)) = (&self.host.http_client, &other.host.http_client) {
            client.known().share_with(others.known());
        }
    }

    /// The tools at this moment, by name.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<RegisteredTool>> {
        self.host.tools.snapshot().iter().cloned().collect()
    }

    /// The tools to show to a model at this moment, by name: without those that the policy denies, that cannot
    /// run here, or that their author hides.
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

    /// Adds a native tool, as [`RegistryBuilder::tool`] does, while the registry serves. Calls find it from
    /// now on. An entry of the policy can name it only if the builder [awaits
    /// it](RegistryBuilder::awaits); without an entry that enables it, its calls are denied.
    ///
    /// # Errors
    /// [`RegistryError`] if a name is invalid or taken, or a schema is unusable; then nothing changes.
    pub fn add_tool(&self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let tool = RegisteredTool::native(tool, ToolOrigin::Native)?;
        self.host.tools.change(|tools| tools.add(tool))
    }

    /// Removes a tool that the embedding program added, by its name. Calls that run end in order; later ones
    /// do not find it. None if the program has no tool of this name.
    #[must_use = "a name that is no tool of the program removes nothing"]
    pub fn remove_tool(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        let remove = |tools: &mut ToolTable| {
            let is_ours = tools.get(name).is_some_and(|tool| tool.facts().origin == ToolOrigin::Native);
            if is_ours { tools.remove(name).ok_or(()) } else { Err(()) }
        };
        self.host.tools.change(remove).ok()
    }

    /// Follows the changes of the tools from this moment on.
    #[must_use]
    pub fn changes(&self) -> ToolChanges {
        ToolChanges(self.host.tools.changes())
    }

    /// Why no call of a tool can run in this process, even if the policy allows it: there is no shell, or no
    /// runner of guests. None if calls can run.
    #[must_use]
    pub fn unavailable_reason<'t>(&self, tool: &'t RegisteredTool) -> Option<&'t str> {
        tool.backend().unavailable_reason(&self.host)
    }

    /// The tool of a name or an alias.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        self.host.tools.snapshot().get(name).cloned()
    }

    /// Warnings about policy entries whose tools are absent, which are no faults.
    #[must_use]
    pub fn unused_entries(&self) -> &[PolicyFault] {
        &self.findings.idle
    }

    /// The foreign modules that were refused, and why.
    #[must_use]
    pub fn refused_modules(&self) -> &[RefusedModule] {
        &self.findings.refused
    }

    /// The policy's assignment to a tool. The denial if the policy refuses the tool, or one of its steps,
    /// altogether. The approval is the strictest of the tool's and its steps'.
    ///
    /// # Errors
    /// The denial that every call of the tool would get.
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

    /// The proven posture of the HTTP client's threads, which are started if they do not run yet. None if no profile of
    /// the policy has hosts, or if this registry makes no requests.
    ///
    /// # Errors
    /// `unavailable`, with the reason for the operator: then no request is made.
    pub async fn egress_posture(&self) -> Option<Result<Posture, ToolError>> {
        let http_client = self.host.http_client.as_ref().filter(|_| self.host.policy.has_network())?;
        Some(http_client.client().await.map(|client| client.posture().clone()))
    }

    /// The findings of building the registry.
    pub(crate) fn findings(&self) -> &BuildFindings {
        &self.findings
    }

    fn pending(&self, call: &ToolCall, caller: &Caller) -> PendingRecord {
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
    /// Whether tools were added or removed since this was made, or since the last [`ToolChanges::changed`].
    /// Always `false` once the registry is dropped.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    /// Waits until tools are added or removed. Never returns once the registry is dropped.
    ///
    /// # Cancellation
    /// Safe: no change is lost.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The present owner of a name that another tool wants.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameHolder {
    /// A shipped tool, or a step of one.
    Shipped,
    /// A native tool of the embedding program.
    Program,
    /// A tool of a foreign module.
    Module {
        /// The module's name.
        name: String,
    },
    /// A tool of the same module.
    SameModule,
    /// The same tool: an alias equals its name, or an alias comes twice.
    SameTool,
}

impl NameHolder {
    /// The holder kind of this tool's names.
    pub(crate) fn of(tool: &RegisteredTool) -> Self {
        match tool.facts().origin {
            ToolOrigin::ShippedModule
            | ToolOrigin::ShippedOperation
            | ToolOrigin::ShippedNative
            | ToolOrigin::ShippedShell => Self::Shipped,
            ToolOrigin::Native => Self::Program,
            ToolOrigin::ForeignModule => {
                Self::Module { name: tool.module_name().unwrap_or_default().to_owned() }
            }
        }
    }
}

impl fmt::Display for NameHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shipped => {
                f.write_str("one is shipped with Portcullis and keeps its name; give the other another name")
            }
            Self::Program => f.write_str("the program has one already"),
            Self::Module { name } => write!(f, "the module `{}` has one already", escape_for_display(name)),
            Self::SameModule => f.write_str("both are of one module"),
            Self::SameTool => f.write_str("it is one tool, which has the name and an alias, or two aliases"),
        }
    }
}

/// Why tools cannot be registered together.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// A name or alias that is invalid.
    #[error("a tool cannot be registered under its name or an alias")]
    Name {
        /// The invalid name.
        #[source]
        source: InvalidToolName,
    },
    /// Two tools with the same name.
    #[error("two tools are named `{name}`: {holder}")]
    Taken {
        /// The refused name.
        name: ToolName,
        /// The present owner of the name.
        holder: NameHolder,
    },
    /// A host of a tool's declaration that is no rule.
    #[error("tool `{tool}` declares the host `{}`, which is no rule: {source}", escape_for_display(text))]
    Hosts {
        /// The tool.
        tool: String,
        /// The text.
        text: String,
        /// The reason.
        source: InvalidHostRule,
    },
    /// A name that could be mistaken for another's.
    #[error("tool `{name}` would be taken for `{other}`")]
    LookAlike {
        /// The refused name.
        name: ToolName,
        /// The name that it resembles.
        other: ToolName,
    },
    /// A capability whose tools this registry does not have.
    #[error("the capability `{capability}` is not available: {reason}")]
    CapabilityMissing {
        /// The capability.
        capability: Capability,
        /// The reason, and what would be right.
        reason: &'static str,
    },
    /// A step of an operation is missing from every module.
    #[error("`{operation}` cannot be registered without its step `{step}`")]
    MissingStep {
        /// The operation's name.
        operation: &'static str,
        /// The name of the missing step.
        step: &'static str,
    },
    /// A result schema that cannot be used.
    #[error("tool `{tool}` has an unusable schema of its results")]
    ResultSchema {
        /// The tool's name.
        tool: String,
        /// The fault of the schema.
        #[source]
        source: SchemaError,
    },
    /// A parameter schema that cannot be used.
    #[error("tool `{tool}` has an unusable parameter schema")]
    Schema {
        /// The tool's name.
        tool: String,
        /// The fault of the schema.
        #[source]
        source: SchemaError,
    },
}
