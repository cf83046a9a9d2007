//! [`ToolRegistry`]: the tools, and the one way to call them.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use portcullis_policy::{Approval, PolicyFault, ToolAssignment, WorkspaceSecurityPolicy};
use portcullis_types::{InvalidToolName, ToolCall, ToolError, ToolEvent, ToolName, ToolResult};
use thiserror::Error;

use crate::{
    arguments::SchemaError,
    audit::{AuditLog, CallRecord},
    builder::RegistryBuilder,
    call::Caller,
    hook::Hooks,
    modules::{Lock, RefusedModule},
    mounts::MountTable,
    output_store::OutputStore,
    pipeline::{Trail, admit, after, authorize, check, record, resolve, run, shape},
    places::Places,
    rates::Rates,
    registered::RegisteredTool,
    table::ToolTable,
    wasm::HostWasmToolRunner,
};

/// Tools behind one pipeline: whatever a tool is, [`ToolRegistry::execute_with_policy`] is the only way to
/// it.
#[derive(Debug)]
pub struct ToolRegistry {
    pub(crate) tools: ToolTable,
    pub(crate) policy: Arc<WorkspaceSecurityPolicy>,
    pub(crate) mounts: Arc<MountTable>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) outputs: Arc<OutputStore>,
    pub(crate) runner: Option<Arc<HostWasmToolRunner>>,
    pub(crate) places: Arc<Places>,
    pub(crate) rates: Arc<Rates>,
    pub(crate) hooks: Hooks,
    /// The steps of operations, in a registry of their own that nobody else can call. Everything but the tools
    /// is shared with this one.
    pub(crate) steps: Option<Arc<ToolRegistry>>,
    /// Tools that should be here and are not.
    pub(crate) lost: BTreeSet<ToolName>,
    pub(crate) refused: Vec<RefusedModule>,
    /// Entries of the policy whose tools are not here, and need not be.
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

    /// Calls a tool: resolve, check, admit, authorize, run, shape, record (specification 004, "Execution
    /// Pipeline"). The audit row is on record before the result is returned.
    ///
    /// # Cancellation
    /// Dropping the future or firing `caller.cancel` stops the tool, and the row says `cancelled`.
    pub async fn execute_with_policy(&self, call: ToolCall, caller: &Caller) -> ToolResult {
        let mut trail = self.trail(&call, caller);
        let outcome = async {
            let resolved = resolve(&self.tools, &self.lost, call, &mut trail)?;
            let checked = check(resolved, &self.hooks, caller, &mut trail).await?;
            let gated = admit(checked, &self.policy, &self.rates, caller, &mut trail)?;
            let means = (&*self.mounts, &*self.rates, &self.hooks);
            let authorized = authorize(gated, &self.policy, means, caller, &mut trail).await?;
            let (runner, steps) = (self.runner.as_deref(), self.steps.as_ref());
            run(authorized, &self.places, runner, steps, caller, &mut trail).await
        }
        .await;
        let outcome = after(outcome, &self.hooks, caller).await;
        let shaped = shape(outcome, &self.outputs, caller, &trail);
        record(shaped, trail, caller)
    }

    /// Gives a call its result that whoever drives the model refuses by itself: the answer that asked for it was cut
    /// off, a person spoke in between, or it was given up before it began. It leaves a row as every call does, and
    /// nothing of it runs.
    #[must_use = "whoever asked is to be told"]
    pub fn refuse(&self, call: ToolCall, caller: &Caller, error: ToolError) -> ToolResult {
        let mut trail = self.trail(&call, caller);
        // For what the row says of the tool; why the call is refused is said already.
        let _ = resolve(&self.tools, &self.lost, call, &mut trail);
        record(shape(Err(error), &self.outputs, caller, &trail), trail, caller)
    }

    /// The tools, by name.
    pub fn tools(&self) -> impl Iterator<Item = &RegisteredTool> {
        self.tools.iter()
    }

    /// The tools that a model may be shown, by name: not those that every call of is refused, nor those that their
    /// author hides.
    pub fn offered(&self) -> impl Iterator<Item = &RegisteredTool> {
        self.tools()
            .filter(|tool| !tool.meta().hidden)
            .filter(|tool| self.assignment(tool).is_ok_and(|assigned| assigned.approval != Approval::Deny))
    }

    /// The tool of a name or an alias.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&RegisteredTool> {
        self.tools.get(name).map(AsRef::as_ref)
    }

    /// What is to be said of entries of the policy whose tools are not here, and which are no faults.
    #[must_use]
    pub fn idle_entries(&self) -> &[PolicyFault] {
        &self.idle
    }

    /// The modules from outside that were found and are not used, and why.
    #[must_use]
    pub fn refused_modules(&self) -> &[RefusedModule] {
        &self.refused
    }

    /// What the policy assigns to a tool; the reason where it refuses it, or one of its steps, altogether. The
    /// strictest approval is that of all of them.
    ///
    /// # Errors
    /// The denial that every call of the tool would get.
    pub fn assignment(
        &self,
        tool: &RegisteredTool,
    ) -> Result<ToolAssignment, Box<portcullis_policy::Denial>> {
        let mut assignment = self.policy.assign(tool.facts()).map_err(Box::new)?;
        for step in tool.steps() {
            let step = self.policy.assign(step.facts()).map_err(Box::new)?;
            assignment.approval = assignment.approval.max(step.approval);
        }
        Ok(assignment)
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &WorkspaceSecurityPolicy {
        &self.policy
    }

    /// The mounts, open.
    #[must_use]
    pub fn mounts(&self) -> &MountTable {
        &self.mounts
    }

    /// The audit log.
    #[must_use]
    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }

    /// The runner of guests, where there is one.
    #[must_use]
    pub fn runner(&self) -> Option<&HostWasmToolRunner> {
        self.runner.as_deref()
    }

    /// A registry of other tools that shares everything else with this one.
    pub(crate) fn of_steps(&self, tools: ToolTable) -> Self {
        Self {
            tools,
            policy: Arc::clone(&self.policy),
            mounts: Arc::clone(&self.mounts),
            audit: Arc::clone(&self.audit),
            outputs: Arc::clone(&self.outputs),
            runner: self.runner.clone(),
            places: Arc::clone(&self.places),
            rates: Arc::clone(&self.rates),
            // The operation was asked about.
            hooks: Hooks::default(),
            steps: None,
            lost: BTreeSet::new(),
            refused: Vec::new(),
            idle: Vec::new(),
            lock: self.lock.clone(),
            state: self.state.clone(),
        }
    }

    fn trail(&self, call: &ToolCall, caller: &Caller) -> Trail {
        caller.emit(&ToolEvent::Requested {
            call_id: call.id.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
        });
        let row = CallRecord {
            call_id: call.id.as_str().into(),
            run_id: Some(caller.run_id.as_str().into()),
            agent: Some(caller.agent_id.as_str().into()),
            operation_id: caller.operation_id.as_deref().map(Into::into),
            tool: call.tool.as_str().into(),
            policy_digest: Some(self.policy.digest().as_str().into()),
            ..CallRecord::default()
        };
        Trail::new(Arc::clone(&self.audit), row)
    }
}

/// Why tools cannot be registered together.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// A name that no tool may have, or go by.
    #[error("a tool cannot be registered under its name or an alias")]
    Name {
        /// What is wrong with it.
        #[source]
        source: InvalidToolName,
    },
    /// Two tools of one name.
    #[error("two tools are named `{name}`")]
    Taken {
        /// The name.
        name: ToolName,
    },
    /// A name that would be taken for another's.
    #[error("tool `{name}` would be taken for `{other}`")]
    LookAlike {
        /// The name.
        name: ToolName,
        /// Whose name it looks like.
        other: ToolName,
    },
    /// An operation one of whose steps no module has.
    #[error("`{operation}` cannot be registered without its step `{step}`")]
    MissingStep {
        /// The operation.
        operation: &'static str,
        /// The step.
        step: &'static str,
    },
    /// A schema of results that cannot be used.
    #[error("tool `{tool}` has an unusable schema of its results")]
    ResultSchema {
        /// The tool.
        tool: String,
        /// What is wrong with it.
        #[source]
        source: SchemaError,
    },
    /// A schema that cannot be used.
    #[error("tool `{tool}` has an unusable parameter schema")]
    Schema {
        /// The tool.
        tool: String,
        /// What is wrong with it.
        #[source]
        source: SchemaError,
    },
}
