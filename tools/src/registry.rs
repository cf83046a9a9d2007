//! [`ToolRegistry`]: the tools, and the one way to call them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use portcullis_policy::{
    OutputBytes, Standing, ToolAssignment, ToolFacts, ToolOrigin, WorkspaceSecurityPolicy,
};
use portcullis_types::{
    FunctionDecl, InvalidToolName, JsonSchema, Tool, ToolDeclaration, ToolEvent, ToolMeta, ToolName,
};
use serde_json::Value;
use thiserror::Error;

use crate::{
    arguments::{ArgumentSchema, SchemaError},
    audit::{AuditLog, CallRecord},
    builder::RegistryBuilder,
    call::{Caller, ToolCall, ToolResult},
    compat::Native,
    modules::{Declared, Lock, RefusedModule},
    mounts::MountTable,
    output_store::OutputStore,
    pipeline::{Trail, admit, authorize, check, record, resolve, run, shape},
    places::Places,
    rates::Rates,
    shell::{BashTool, ShellBackend},
    table::ToolTable,
    vault::VaultCopy,
    wasm::{GuestModule, HostWasmToolRunner},
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
    /// The steps of operations, in a registry of their own that nobody else can call. Everything but the tools
    /// is shared with this one.
    pub(crate) steps: Option<Arc<ToolRegistry>>,
    /// Tools that should be here and are not.
    pub(crate) lost: BTreeSet<ToolName>,
    pub(crate) refused: Vec<RefusedModule>,
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
            let checked = check(resolved, &mut trail)?;
            let gated = admit(checked, &self.policy, &self.rates, caller, &mut trail)?;
            let authorized =
                authorize(gated, &self.policy, &self.mounts, &self.rates, caller, &mut trail).await?;
            let (runner, steps) = (self.runner.as_deref(), self.steps.as_ref());
            run(authorized, &self.places, runner, steps, caller, &mut trail).await
        }
        .await;
        let shaped = shape(outcome, &self.outputs, caller, &trail);
        record(shaped, trail, caller)
    }

    /// The tools, by name.
    pub fn tools(&self) -> impl Iterator<Item = &RegisteredTool> {
        self.tools.iter()
    }

    /// The tool of a name or an alias.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&RegisteredTool> {
        self.tools.get(name).map(AsRef::as_ref)
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
        let mut assignment = self.policy.assign(&tool.facts).map_err(Box::new)?;
        for step in tool.steps() {
            let step = self.policy.assign(&step.facts).map_err(Box::new)?;
            assignment.approval = assignment.approval.max(step.approval);
        }
        Ok(assignment)
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &WorkspaceSecurityPolicy {
        &self.policy
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
            steps: None,
            lost: BTreeSet::new(),
            refused: Vec::new(),
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

/// A tool as it is registered.
#[derive(Debug)]
pub struct RegisteredTool {
    decl: FunctionDecl,
    label: Option<String>,
    output_schema: Option<JsonSchema>,
    meta: ToolMeta,
    aliases: Vec<ToolName>,
    facts: ToolFacts,
    schema: ArgumentSchema,
    defaults: BTreeMap<String, String>,
    pages_itself: bool,
    backend: Backend,
}

/// What runs a tool.
#[derive(Clone)]
pub(crate) enum Backend {
    /// A tool of this process, outside the sandbox.
    Native(Arc<dyn Tool>),
    /// A guest.
    Guest(GuestTool),
    /// An operation that is made of steps.
    Operation(VaultCopy),
    /// Commands, in the sessions of a sidecar.
    Shell(BashTool),
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Native(_) => f.write_str("Native"),
            Self::Guest(guest) => guest.fmt(f),
            Self::Operation(operation) => operation.fmt(f),
            Self::Shell(shell) => shell.fmt(f),
        }
    }
}

/// What a tool says of itself that the policy does not ask for.
struct Said {
    label: Option<String>,
    output_schema: Option<JsonSchema>,
    meta: ToolMeta,
}

impl Said {
    fn only(label: &str) -> Self {
        Self { label: Some(label.to_owned()), output_schema: None, meta: ToolMeta::default() }
    }
}

/// A tool of a module.
#[derive(Debug, Clone)]
pub(crate) struct GuestTool {
    module: Arc<GuestModule>,
    /// The file that the module was found in, or what an embedder calls it.
    module_name: String,
    declared: Declared,
}

impl GuestTool {
    pub(crate) fn module(&self) -> &Arc<GuestModule> {
        &self.module
    }
}

impl RegisteredTool {
    /// A native tool: what it says of itself is read here, once.
    pub(crate) fn native(native: Native, origin: ToolOrigin) -> Result<Self, RegistryError> {
        let Native { tool, declared_tier } = native;
        let (decl, meta) = (tool.schema(), tool.meta());
        let facts = ToolFacts {
            name: parse_name(&decl.name)?,
            declared_tier,
            declared_policy: tool.policy(),
            declared_timeout: Some(tool.timeout()),
            declared_max_output: meta.output_cap_bytes.map(OutputBytes),
            roles: tool.roles(),
            origin,
            standing: Standing::Unpinned,
        };
        let said = Said { label: tool.label(), output_schema: tool.output_schema(), meta };
        Self::new(decl, said, facts, Backend::Native(tool))
    }

    /// A tool of a module, from its declaration. What was approved of one from outside is in the lock.
    pub(crate) fn guest(
        declaration: ToolDeclaration,
        module_name: &str,
        module: &Arc<GuestModule>,
        origin: ToolOrigin,
        lock: &Lock,
    ) -> Result<Self, RegistryError> {
        let decl = declaration.function_decl();
        let name = parse_name(&decl.name)?;
        let declared = Declared::of(&declaration);
        let standing = match origin {
            ToolOrigin::ForeignModule => lock.standing(&name, module.digest(), &declared),
            ToolOrigin::ShippedModule
            | ToolOrigin::ShippedOperation
            | ToolOrigin::ShippedNative
            | ToolOrigin::Native => Standing::Unpinned,
        };
        let facts = ToolFacts {
            name,
            declared_tier: declaration.tier,
            declared_policy: declaration.policy,
            declared_timeout: declaration.timeout_ms.map(std::time::Duration::from_millis),
            declared_max_output: declaration.meta.output_cap_bytes.map(OutputBytes),
            roles: declaration.roles,
            origin,
            standing,
        };
        let (module, module_name) = (Arc::clone(module), module_name.to_owned());
        let backend = Backend::Guest(GuestTool { module, module_name, declared });
        let ToolDeclaration { label, output_schema, meta, .. } = declaration;
        Self::new(decl, Said { label, output_schema, meta }, facts, backend)
    }

    /// An operation that is made of steps.
    pub(crate) fn operation(
        decl: FunctionDecl,
        label: &str,
        facts: ToolFacts,
        operation: VaultCopy,
    ) -> Result<Self, RegistryError> {
        Self::new(decl, Said::only(label), facts, Backend::Operation(operation))
    }

    /// A tool that runs commands.
    pub(crate) fn shell(
        decl: FunctionDecl,
        label: &str,
        facts: ToolFacts,
        shell: BashTool,
    ) -> Result<Self, RegistryError> {
        Self::new(decl, Said::only(label), facts, Backend::Shell(shell))
    }

    fn new(
        decl: FunctionDecl,
        said: Said,
        facts: ToolFacts,
        backend: Backend,
    ) -> Result<Self, RegistryError> {
        let Said { label, output_schema, meta } = said;
        let aliases = meta.aliases.iter().map(|alias| parse_name(alias)).collect::<Result<_, _>>()?;
        let schema = ArgumentSchema::compile(&decl.parameters)
            .map_err(|source| RegistryError::Schema { tool: decl.name.clone(), source })?;
        if let Some(results) = &output_schema {
            // Clients are shown it; one that is no schema would cost them the whole listing.
            ArgumentSchema::compile(results)
                .map_err(|source| RegistryError::ResultSchema { tool: decl.name.clone(), source })?;
        }
        let defaults = string_defaults(&decl.parameters);
        let pages_itself = false;
        Ok(Self { decl, label, output_schema, meta, aliases, facts, schema, defaults, pages_itself, backend })
    }

    /// Exempts the tool from the output limit: it pages by itself, and would otherwise cut what it fetches
    /// a second time.
    pub(crate) fn paging_itself(mut self) -> Self {
        self.pages_itself = true;
        self
    }

    /// What a model sees.
    #[must_use]
    pub fn decl(&self) -> &FunctionDecl {
        &self.decl
    }

    /// A name for people, where the tool has one.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// The schema of structured results, where the tool has one.
    #[must_use]
    pub fn output_schema(&self) -> Option<&JsonSchema> {
        self.output_schema.as_ref()
    }

    /// Hints of its author.
    #[must_use]
    pub fn meta(&self) -> &ToolMeta {
        &self.meta
    }

    /// The other names that it may be called by.
    pub(crate) fn aliases(&self) -> &[ToolName] {
        &self.aliases
    }

    /// Its name and its aliases.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ToolName> {
        std::iter::once(&self.facts.name).chain(&self.aliases)
    }

    /// What the policy knows of the tool.
    #[must_use]
    pub fn facts(&self) -> &ToolFacts {
        &self.facts
    }

    /// What keeps the tool in: `wasm`, `shell`, or `native, unconfined`.
    #[must_use]
    pub fn confinement(&self) -> crate::audit::Confinement {
        match self.backend {
            Backend::Native(_) => crate::audit::Confinement::Native,
            Backend::Shell(_) => crate::audit::Confinement::Shell,
            // An operation touches nothing but through its steps.
            Backend::Guest(_) | Backend::Operation(_) => crate::audit::Confinement::Wasm,
        }
    }

    /// The module that a guest tool is of.
    #[must_use]
    pub fn module(&self) -> Option<&Arc<GuestModule>> {
        match &self.backend {
            Backend::Native(_) | Backend::Operation(_) | Backend::Shell(_) => None,
            Backend::Guest(guest) => Some(&guest.module),
        }
    }

    /// The file that a guest tool's module was found in, or what an embedder calls it.
    #[must_use]
    pub fn module_name(&self) -> Option<&str> {
        match &self.backend {
            Backend::Native(_) | Backend::Operation(_) | Backend::Shell(_) => None,
            Backend::Guest(guest) => Some(&guest.module_name),
        }
    }

    /// What a guest tool says of itself.
    #[must_use]
    pub fn declared(&self) -> Option<&Declared> {
        match &self.backend {
            Backend::Native(_) | Backend::Operation(_) | Backend::Shell(_) => None,
            Backend::Guest(guest) => Some(&guest.declared),
        }
    }

    /// The steps that an operation is made of, which cannot be called by themselves; none of any other tool.
    #[must_use]
    pub fn steps(&self) -> &[Arc<RegisteredTool>] {
        match &self.backend {
            Backend::Native(_) | Backend::Guest(_) | Backend::Shell(_) => &[],
            Backend::Operation(operation) => operation.steps(),
        }
    }

    /// Where the tool's commands run, if it runs any.
    #[must_use]
    pub fn shell_backend(&self) -> Option<&ShellBackend> {
        match &self.backend {
            Backend::Shell(shell) => Some(shell.backend()),
            Backend::Native(_) | Backend::Guest(_) | Backend::Operation(_) => None,
        }
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    pub(crate) fn schema(&self) -> &ArgumentSchema {
        &self.schema
    }

    pub(crate) fn pages_itself(&self) -> bool {
        self.pages_itself
    }

    /// The name that a module knows the tool by.
    pub(crate) fn guest_name(&self) -> &str {
        &self.decl.name
    }

    /// The default of a string argument, as the schema declares it.
    pub(crate) fn default_of(&self, argument: &str) -> Option<&str> {
        self.defaults.get(argument).map(String::as_str)
    }
}

fn parse_name(name: &str) -> Result<ToolName, RegistryError> {
    ToolName::parse(name).map_err(|source| RegistryError::Name { source })
}

fn string_defaults(parameters: &JsonSchema) -> BTreeMap<String, String> {
    let properties = parameters.as_value().get("properties").and_then(Value::as_object);
    let default = |(name, schema): (&String, &Value)| {
        schema.get("default").and_then(Value::as_str).map(|text| (name.clone(), text.to_owned()))
    };
    properties.into_iter().flatten().filter_map(default).collect()
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
