//! A registered tool: its declaration for the model, its descriptor for the policy, and its backend.

use std::{collections::BTreeMap, sync::Arc};

use portcullis_policy::{OutputBytes, PinStatus, ToolDescriptor, ToolOrigin, WorkspaceSecurityPolicy};
use portcullis_types::{FunctionDecl, JsonSchema, Tool, ToolArgs, ToolDeclaration, ToolMeta, ToolName};
use serde_json::Value;

use crate::{
    arguments::ArgumentSchema,
    configured_tool::ConfiguredTool,
    external::ExternalTool,
    home::NonDefaultHome,
    http_tool::{HttpTarget, HttpTool},
    internal_tool::InternalTool,
    mcp_tool::McpTool,
    modules::{DeclarationSummary, Pins},
    pipeline::{Backend, ExternalBackend, GuestTool, HttpBackend, InternalBackend, McpBackend, NativeTool},
    registry::RegistryError,
    sandbox::GuestModule,
    shell::{BashTool, ShellBackend},
    web::DeclaredHosts,
};

/// A registered tool.
#[derive(Debug)]
pub struct RegisteredTool {
    decl: FunctionDecl,
    label: Option<String>,
    output_schema: Option<JsonSchema>,
    meta: ToolMeta,
    aliases: Vec<ToolName>,
    descriptor: ToolDescriptor,
    schema: ArgumentSchema,
    defaults: BTreeMap<String, String>,
    pages_itself: bool,
    /// The mount in which relative paths are resolved, if not `shared`.
    home: Option<NonDefaultHome>,
    backend: Arc<dyn Backend>,
}

/// The parts of a tool's declaration that the policy does not need.
struct DeclaredExtras {
    label: Option<String>,
    output_schema: Option<JsonSchema>,
    meta: ToolMeta,
}

impl DeclaredExtras {
    fn with_label(label: &str) -> Self {
        Self { label: Some(label.to_owned()), output_schema: None, meta: ToolMeta::default() }
    }
}

impl RegisteredTool {
    /// Registers a native tool. Its declaration is read once, here.
    pub(crate) fn native(tool: Arc<dyn Tool>, origin: ToolOrigin) -> Result<Self, RegistryError> {
        let (decl, meta) = (tool.schema(), tool.meta());
        let descriptor = ToolDescriptor {
            name: parse_name(&decl.name, &decl.name)?,
            declared_tier: tool.declared_tier(),
            declared_policy: tool.policy(),
            declared_timeout: Some(tool.timeout()),
            declared_max_output: meta.output_cap_bytes.map(OutputBytes),
            roles: tool.roles(),
            origin,
            pin_status: PinStatus::Unpinned,
        };
        let extras = DeclaredExtras { label: tool.label(), output_schema: tool.output_schema(), meta };
        Self::new(decl, extras, descriptor, NativeTool(tool))
    }

    /// Registers a tool of a module, from its declaration. For a foreign module, `pins` holds the approval.
    pub(crate) fn guest(
        declaration: ToolDeclaration,
        module_name: &str,
        module: &Arc<GuestModule>,
        origin: ToolOrigin,
        pins: &Pins,
    ) -> Result<Self, RegistryError> {
        let decl = declaration.function_decl();
        let name = parse_name(&decl.name, &decl.name)?;
        let summary = DeclarationSummary::new(&declaration);
        // Only a foreign module can change without a new program, so only its content needs an approval.
        let pin_status = match origin {
            ToolOrigin::ForeignModule => pins.pin_status(&name, module.digest(), &summary),
            ToolOrigin::ShippedModule
            | ToolOrigin::ShippedOperation
            | ToolOrigin::ShippedNative
            | ToolOrigin::ShippedShell
            | ToolOrigin::ShippedGateway
            | ToolOrigin::External
            | ToolOrigin::Http
            | ToolOrigin::Mcp
            | ToolOrigin::Internal
            | ToolOrigin::Native => PinStatus::Unpinned,
        };
        let descriptor = ToolDescriptor {
            name,
            declared_tier: declaration.tier,
            declared_policy: declaration.policy,
            declared_timeout: declaration.timeout_ms.map(std::time::Duration::from_millis),
            declared_max_output: declaration.meta.output_cap_bytes.map(OutputBytes),
            roles: declaration.roles,
            origin,
            pin_status,
        };
        let (module, module_name) = (Arc::clone(module), module_name.to_owned());
        let hosts = DeclaredHosts::parse(&declaration.hosts)
            .map_err(|(text, source)| RegistryError::Hosts { tool: decl.name.clone(), text, source })?;
        let backend = GuestTool { module, module_name, declarations: summary, hosts };
        let ToolDeclaration { label, output_schema, meta, .. } = declaration;
        Self::new(decl, DeclaredExtras { label, output_schema, meta }, descriptor, backend)
    }

    /// Registers an operation made of steps, or a step that is not a guest.
    pub(crate) fn operation(
        decl: FunctionDecl,
        label: &str,
        descriptor: ToolDescriptor,
        operation: impl Backend + 'static,
    ) -> Result<Self, RegistryError> {
        Self::new(decl, DeclaredExtras::with_label(label), descriptor, operation)
    }

    /// Registers a tool that a configuration describes. The policy refuses some URLs before any call.
    pub(crate) fn configured(
        tool: ConfiguredTool,
        policy: &WorkspaceSecurityPolicy,
    ) -> Result<Self, RegistryError> {
        match tool {
            ConfiguredTool::Http(tool) => Self::http(tool, policy),
            ConfiguredTool::Mcp(tool) => Self::mcp(tool, policy),
            ConfiguredTool::External(tool) => Self::external(tool),
            ConfiguredTool::Internal(tool) => Self::internal(tool),
        }
    }

    fn http(tool: HttpTool, policy: &WorkspaceSecurityPolicy) -> Result<Self, RegistryError> {
        let descriptor = tool.descriptor()?;
        let HttpTool { decl, label, target, meta, .. } = tool;
        policy
            .judge_configured_url(target.url())
            .map_err(|denial| RegistryError::Address { tool: decl.name.clone(), denial: Box::new(denial) })?;
        let extras = DeclaredExtras { label, output_schema: None, meta };
        Self::new(decl, extras, descriptor, HttpBackend(target))
    }

    fn mcp(tool: McpTool, policy: &WorkspaceSecurityPolicy) -> Result<Self, RegistryError> {
        let descriptor = tool.descriptor()?;
        let McpTool { decl, meta, server, request, .. } = tool;
        policy
            .judge_configured_url(server.target().url())
            .map_err(|denial| RegistryError::Address { tool: decl.name.clone(), denial: Box::new(denial) })?;
        let extras = DeclaredExtras { label: None, output_schema: None, meta };
        Self::new(decl, extras, descriptor, McpBackend { server, request })
    }

    fn internal(tool: InternalTool) -> Result<Self, RegistryError> {
        let descriptor = tool.descriptor()?;
        let InternalTool { decl, label, meta, .. } = tool;
        Self::new(decl, DeclaredExtras { label, output_schema: None, meta }, descriptor, InternalBackend)
    }

    fn external(tool: ExternalTool) -> Result<Self, RegistryError> {
        let descriptor = tool.descriptor()?;
        let ExternalTool { decl, label, waits, lifetime, meta, .. } = tool;
        let extras = DeclaredExtras { label, output_schema: None, meta };
        Self::new(decl, extras, descriptor, ExternalBackend { waits, lifetime })
    }

    /// Registers a tool that runs commands.
    pub(crate) fn shell(
        decl: FunctionDecl,
        label: &str,
        descriptor: ToolDescriptor,
        shell: BashTool,
    ) -> Result<Self, RegistryError> {
        Self::new(decl, DeclaredExtras::with_label(label), descriptor, shell)
    }

    fn new(
        decl: FunctionDecl,
        extras: DeclaredExtras,
        descriptor: ToolDescriptor,
        backend: impl Backend + 'static,
    ) -> Result<Self, RegistryError> {
        let DeclaredExtras { label, output_schema, meta } = extras;
        let aliases =
            meta.aliases.iter().map(|alias| parse_name(&decl.name, alias)).collect::<Result<_, _>>()?;
        let schema = compile(&decl, &descriptor)?;
        if let Some(results) = &output_schema {
            check_results(&decl.name, results)?;
        }
        let defaults = string_defaults(&decl.parameters);
        let pages_itself = false;
        Ok(Self {
            decl,
            label,
            output_schema,
            meta,
            aliases,
            descriptor,
            schema,
            defaults,
            pages_itself,
            home: None,
            backend: Arc::new(backend),
        })
    }

    /// Changes the home of the tool.
    pub(crate) fn with_home(mut self, home: &NonDefaultHome) -> Result<Self, RegistryError> {
        self.decl = home.declare(self.decl, self.descriptor.origin);
        self.schema = compile(&self.decl, &self.descriptor)?;
        self.defaults = string_defaults(&self.decl.parameters);
        self.home = Some(home.clone());
        Ok(self)
    }

    /// Makes relative paths in checked arguments absolute, unless the home is `shared`.
    pub(crate) fn with_absolute_paths(&self, args: ToolArgs) -> ToolArgs {
        match &self.home {
            Some(home) => home.absolute_paths(args, self),
            None => args,
        }
    }

    /// Exempts the tool from the output limit. The tool pages its results itself, and a page must not
    /// be truncated again.
    pub(crate) fn without_output_limit(mut self) -> Self {
        self.pages_itself = true;
        self
    }

    /// Hides the tool from models. Callers can still call it by name.
    pub(crate) fn hidden(mut self) -> Self {
        self.meta.hidden = true;
        self
    }

    /// Declares the schema of structured results.
    pub(crate) fn with_results(mut self, results: JsonSchema) -> Result<Self, RegistryError> {
        check_results(&self.decl.name, &results)?;
        self.output_schema = Some(results);
        Ok(self)
    }

    /// The declaration for the model.
    #[must_use]
    pub fn decl(&self) -> &FunctionDecl {
        &self.decl
    }

    /// A name for people, if the tool has one.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// The schema of structured results, if the tool has one.
    #[must_use]
    pub fn output_schema(&self) -> Option<&JsonSchema> {
        self.output_schema.as_ref()
    }

    /// The hints of the tool's author.
    #[must_use]
    pub fn meta(&self) -> &ToolMeta {
        &self.meta
    }

    /// Other names under which models can call the tool.
    pub(crate) fn aliases(&self) -> &[ToolName] {
        &self.aliases
    }

    /// The tool's name and its aliases.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ToolName> {
        std::iter::once(&self.descriptor.name).chain(&self.aliases)
    }

    /// The descriptor that the policy judges the tool by.
    #[must_use]
    pub fn descriptor(&self) -> &ToolDescriptor {
        &self.descriptor
    }

    /// The tool's confinement: `wasm`, `egress`, `shell`, `external`, `internal`, or `native, unconfined`.
    #[must_use]
    pub fn confinement(&self) -> crate::audit::Confinement {
        self.backend.confinement()
    }

    /// The request of an HTTP tool or an MCP tool: method and URL.
    #[must_use]
    pub fn http_target(&self) -> Option<&HttpTarget> {
        self.backend.http_target()
    }

    /// Whether the tool's module declares hosts. The host sends requests to them for the tool, if the
    /// policy grants them.
    #[must_use]
    pub fn declares_hosts(&self) -> bool {
        self.backend.guest().is_some_and(|guest| guest.hosts.is_some())
    }

    /// The module of a guest tool.
    #[must_use]
    pub fn module(&self) -> Option<&Arc<GuestModule>> {
        self.backend.guest().map(|guest| &guest.module)
    }

    /// The file of a guest tool's module, or the embedder's name for the module.
    #[must_use]
    pub fn module_name(&self) -> Option<&str> {
        self.backend.guest().map(|guest| guest.module_name.as_str())
    }

    /// The declaration of a guest tool.
    #[must_use]
    pub fn declared(&self) -> Option<&DeclarationSummary> {
        self.backend.guest().map(|guest| &guest.declarations)
    }

    /// The steps of an operation, which cannot be called directly. Empty for any other tool.
    #[must_use]
    pub fn steps(&self) -> &[Arc<RegisteredTool>] {
        self.backend.steps()
    }

    /// The shell backend, if the tool runs commands.
    #[must_use]
    pub fn shell_backend(&self) -> Option<&ShellBackend> {
        self.backend.shell()
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    pub(crate) fn schema(&self) -> &ArgumentSchema {
        &self.schema
    }

    pub(crate) fn pages_itself(&self) -> bool {
        self.pages_itself
    }

    /// The tool's name within its module.
    pub(crate) fn guest_name(&self) -> &str {
        &self.decl.name
    }

    /// The default that the schema declares for a string argument.
    pub(crate) fn default_of(&self, argument: &str) -> Option<&str> {
        self.defaults.get(argument).map(String::as_str)
    }
}

fn compile(decl: &FunctionDecl, descriptor: &ToolDescriptor) -> Result<ArgumentSchema, RegistryError> {
    let schema = ArgumentSchema::compile(&decl.parameters)
        .map_err(|source| RegistryError::Schema { tool: decl.name.clone(), source })?;
    Ok(schema.with_roles(&descriptor.roles))
}

/// Refuses an invalid schema of results. Clients receive it, and one bad schema could break
/// their whole tool list.
fn check_results(tool: &str, results: &JsonSchema) -> Result<(), RegistryError> {
    let compiled = ArgumentSchema::compile(results);
    compiled.map(drop).map_err(|source| RegistryError::ResultSchema { tool: tool.to_owned(), source })
}

/// Parses the name or an alias of a tool.
///
/// # Errors
/// [`RegistryError::Name`]
pub(crate) fn parse_name(tool: &str, name: &str) -> Result<ToolName, RegistryError> {
    ToolName::parse(name).map_err(|source| RegistryError::Name { tool: tool.to_owned(), source })
}

fn string_defaults(parameters: &JsonSchema) -> BTreeMap<String, String> {
    let properties = parameters.as_value().get("properties").and_then(Value::as_object);
    let default = |(name, schema): (&String, &Value)| {
        schema.get("default").and_then(Value::as_str).map(|text| (name.clone(), text.to_owned()))
    };
    properties.into_iter().flatten().filter_map(default).collect()
}
