//! [`Host`]: all that a call is run with beside the call itself and its caller.

use std::sync::Arc;

use portcullis_policy::WorkspaceSecurityPolicy;

use crate::{
    audit::AuditLog,
    hook::Hooks,
    output_store::OutputStore,
    rates::Rates,
    registry::ToolRegistry,
    sandbox::{HostWasmToolRunner, mounts::MountTable},
    slots::CallSlots,
    table::ToolTable,
};

/// What the steps of the pipeline share: put together once, when the registry is built. The registry of an operation's
/// steps has the same, but for the tools, the hooks and the steps.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) tools: Arc<ToolTable>,
    pub(crate) policy: Arc<WorkspaceSecurityPolicy>,
    pub(crate) mounts: Arc<MountTable>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) outputs: Arc<OutputStore>,
    pub(crate) runner: Option<Arc<HostWasmToolRunner>>,
    pub(crate) slots: Arc<CallSlots>,
    pub(crate) rates: Arc<Rates>,
    pub(crate) hooks: Hooks,
    /// The steps of operations, in a registry of their own, which no caller but an operation reaches.
    pub(crate) steps: Option<Arc<ToolRegistry>>,
}

impl Host {
    /// Why no guest can run here; none where one can.
    pub(crate) fn absence_of_guests(&self) -> Option<&'static str> {
        self.runner.is_none().then_some("no WebAssembly runner is set up")
    }

    /// The same for the steps of operations. They have no hooks: those were asked about the operation.
    pub(crate) fn of_steps(&self, tools: ToolTable) -> Self {
        Self { tools: Arc::new(tools), hooks: Hooks::default(), steps: None, ..self.clone() }
    }
}
