//! Registers the tools of a registry, one kind after the other.

use std::sync::Arc;

use portcullis_policy::{
    MountName, NotifySettings, Operation, SearchSettings, ShellPolicy, ToolOrigin, WorkspaceSecurityPolicy,
};
use portcullis_types::{Declarations, Tool};

use crate::{
    configured_tool::ConfiguredTool,
    error::BootstrapError,
    modules::{self, ForeignModule, Pins, RefusedModule},
    native::{AddOutputLabelsFn, Capability, CapabilityStatus, IsStillGrantedFn, OutputRead},
    output_store::OutputStore,
    registered::RegisteredTool,
    registry::RegistryError,
    sandbox::GuestModule,
    shell::{BashTool, ShellBackend},
    tool_table::ToolTable,
    vault,
    web::{self, HttpClientHandle},
};

/// An embedded module with its declarations.
pub(super) type ShippedModule = (String, Arc<GuestModule>, Declarations);

/// The tools registered so far. The first tool to claim a name gets it.
pub(super) struct Registration<'a> {
    pins: &'a Pins,
    pub(super) tools: ToolTable,
    /// The steps of operations, which a caller cannot call by name.
    pub(super) steps: ToolTable,
    pub(super) refused: Vec<RefusedModule>,
    /// Name and SHA-256 of each module in use.
    pub(super) digests: Vec<(String, [u8; 32])>,
}

impl<'a> Registration<'a> {
    /// Starts without tools. `pins` holds the approvals of foreign modules. Relative paths in all tools
    /// resolve against the mount `home`.
    pub(super) fn new(pins: &'a Pins, home: &MountName) -> Self {
        Self {
            pins,
            tools: ToolTable::new(home),
            steps: ToolTable::new(home),
            refused: Vec::new(),
            digests: Vec::new(),
        }
    }

    /// Adds native tools. The shipped ones among `hidden` are not offered to models.
    pub(super) fn add_natives(
        &mut self,
        natives: Vec<(Arc<dyn Tool>, ToolOrigin)>,
        hidden: &[&str],
    ) -> Result<(), RegistryError> {
        for (tool, origin) in natives {
            let tool = RegisteredTool::native(tool, origin)?;
            let is_hidden =
                origin == ToolOrigin::ShippedNative && hidden.contains(&tool.decl().name.as_str());
            self.add(if is_hidden { tool.hidden() } else { tool })?;
        }
        Ok(())
    }

    /// Adds the tools that configurations describe.
    pub(super) fn add_configured(
        &mut self,
        tools: Vec<ConfiguredTool>,
        policy: &WorkspaceSecurityPolicy,
    ) -> Result<(), RegistryError> {
        tools.into_iter().try_for_each(|tool| self.add(RegisteredTool::configured(tool, policy)?))
    }

    /// Adds the tools of capabilities, unless they are already registered.
    pub(super) fn add_capabilities(&mut self, capabilities: &[Capability]) -> Result<(), RegistryError> {
        for tool in capabilities.iter().flat_map(|capability| capability.natives()) {
            let shipped = RegisteredTool::native(tool, ToolOrigin::ShippedNative)?;
            let registered = self.tools.get(&shipped.decl().name);
            if registered.is_none_or(|tool| tool.descriptor().origin != ToolOrigin::ShippedNative) {
                self.add(shipped)?;
            }
        }
        Ok(())
    }

    /// Refuses capabilities whose tools are not registered: an agent must not get a capability without its
    /// tools.
    pub(super) fn ensure_capabilities(&self, capabilities: &[Capability]) -> Result<(), RegistryError> {
        for capability in capabilities {
            let has_tool =
                |name: &&str| self.tools.get(name).is_some_and(|tool| tool.descriptor().origin.is_shipped());
            let reason = match capability.status() {
                CapabilityStatus::ComingSoon => "it has no tools yet",
                CapabilityStatus::Available if capability.tools().iter().all(has_tool) => {
                    continue;
                }
                CapabilityStatus::Available => {
                    "its tools need guests, a shell or the HTTP client; build with `runtime_builder`"
                }
            };
            return Err(RegistryError::CapabilityMissing { capability: *capability, reason });
        }
        Ok(())
    }

    /// Adds `shell_exec`.
    pub(super) fn add_shell(
        &mut self,
        backend: ShellBackend,
        policy: Option<&ShellPolicy>,
    ) -> Result<(), RegistryError> {
        self.add(BashTool::new(backend).register(policy)?)
    }

    /// Adds the tools of the embedded modules.
    pub(super) fn add_shipped_modules(&mut self, shipped: Vec<ShippedModule>) -> Result<(), RegistryError> {
        for (name, module, declarations) in shipped {
            for declaration in declarations.tools {
                let origin = ToolOrigin::ShippedModule;
                self.add(RegisteredTool::guest(declaration, &name, &module, origin, self.pins)?)?;
            }
            self.digests.push((name, module.digest().0));
        }
        Ok(())
    }

    /// Adds the steps of the embedded modules, the request steps, and the operations made of them.
    pub(super) fn add_operations(
        &mut self,
        steps: Vec<ShippedModule>,
        http_client: Option<&Arc<HttpClientHandle>>,
        (search, notify): (Option<&SearchSettings>, Option<&NotifySettings>),
    ) -> Result<(), RegistryError> {
        if steps.is_empty() {
            return Ok(());
        }
        for (name, module, declarations) in steps {
            for declaration in declarations.tools {
                let origin = ToolOrigin::ShippedOperation;
                let step = RegisteredTool::guest(declaration, &name, &module, origin, self.pins)?;
                // The operation gets the step's whole result. The operation's own result is then truncated
                // and stored whole.
                self.steps.insert(step.without_output_limit())?;
            }
            self.digests.push((name, module.digest().0));
        }
        self.add(vault::tool(&self.steps)?)?;
        // Without the HTTP client there are no web tools.
        let Some(http_client) = http_client else { return Ok(()) };
        self.steps.insert(web::request_step(Operation::WEB_FETCH, Arc::clone(http_client), web::PAGE)?)?;
        self.add(web::tool(&self.steps)?)?;
        // Without a service in the policy there are no notifications.
        if let Some(notify) = notify.cloned().map(Arc::new) {
            let template = web::NOTIFICATION_REQUEST;
            let client = || Arc::clone(http_client);
            self.steps.insert(web::request_step(Operation::SEND_NOTIFICATION, client(), template)?)?;
            self.steps.insert(web::mail_step(client())?)?;
            self.add(web::send_notification(&self.steps, notify)?)?;
        }
        // Without a provider in the policy there is no search.
        let Some(search) = search.cloned().map(Arc::new) else { return Ok(()) };
        let template = web::search_request(search.provider);
        self.steps.insert(web::request_step(Operation::WEB_SEARCH, Arc::clone(http_client), template)?)?;
        self.add(web::web_search(&self.steps, Arc::clone(&search))?)?;
        self.add(web::search_web(&self.steps, search)?)
    }

    /// Adds `output_read`, which reads this store.
    pub(super) fn add_output_read(
        &mut self,
        outputs: &Arc<OutputStore>,
        still_granted: IsStillGrantedFn,
        follow: AddOutputLabelsFn,
    ) -> Result<(), RegistryError> {
        let tool: Arc<dyn Tool> = Arc::new(OutputRead::new(Arc::clone(outputs), still_granted, follow));
        self.add(RegisteredTool::native(tool, ToolOrigin::ShippedNative)?.without_output_limit())
    }

    /// Adds the tools of foreign modules whose names are free.
    ///
    /// # Errors
    /// [`BootstrapError`] if a module that was named explicitly cannot be used.
    pub(super) fn add_foreign_modules(
        &mut self,
        foreign: Vec<ForeignModule>,
        refused: Vec<RefusedModule>,
    ) -> Result<(), BootstrapError> {
        let accepted = modules::accept(foreign, &self.tools, self.pins)?;
        for tool in accepted.tools {
            self.add(tool)?;
        }
        self.refused = refused;
        self.refused.extend(accepted.refused);
        self.digests.extend(accepted.digests);
        Ok(())
    }

    fn add(&mut self, tool: RegisteredTool) -> Result<(), RegistryError> {
        self.tools.add(tool)
    }
}
