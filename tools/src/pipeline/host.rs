//! [`Host`]: the shared state that every call needs.

use std::sync::Arc;

use portcullis_policy::WorkspaceSecurityPolicy;
use portcullis_undo::UndoStore;

use portcullis_types::Extensions;

use crate::{
    approval::StandingApprovals,
    audit::AuditLog,
    hook::Hooks,
    output_store::OutputStore,
    rate_limit::Rates,
    registry::ToolRegistry,
    run_labels::RunLabels,
    sandbox::{HostWasmToolRunner, mounts::MountTable},
    slots::CallSlots,
    tool_table::{ServedTools, ToolTable},
    web::HttpClientHandle,
};

/// The shared state of the pipeline, created once when the registry is built. The registry of the operations'
/// steps shares it, except tools, hooks and steps.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) tools: Arc<ServedTools>,
    pub(crate) policy: Arc<WorkspaceSecurityPolicy>,
    pub(crate) mounts: Arc<MountTable>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) outputs: Arc<OutputStore>,
    /// Records the changes in mounts with `undo`.
    pub(crate) undo: UndoStore,
    pub(crate) runner: Option<Arc<HostWasmToolRunner>>,
    pub(crate) slots: Arc<CallSlots>,
    pub(crate) rates: Arc<Rates>,
    pub(crate) labels: Arc<RunLabels>,
    /// Starts the HTTP client. Without it, no tool can make requests.
    pub(crate) http_client: Option<Arc<HttpClientHandle>>,
    pub(crate) hooks: Hooks,
    /// The state values that native tools take.
    pub(crate) states: Extensions,
    /// The rules that approvers add to the operator's policy. Without it, there are no standing approvals.
    pub(crate) standing_approvals: Option<Arc<StandingApprovals>>,
    /// The steps of operations, in a separate registry that only operations can reach.
    pub(crate) operation_steps: Option<Arc<ToolRegistry>>,
}

impl Host {
    /// Why guests cannot run. `None` if they can.
    pub(crate) fn unavailable_guests_reason(&self) -> Option<&'static str> {
        self.runner.is_none().then_some("no WebAssembly runner is set up")
    }

    /// Returns the host of the operations' steps. It has no hooks, because they have seen
    /// the operation itself.
    pub(crate) fn step_host(&self, tools: ToolTable) -> Self {
        Self {
            tools: Arc::new(ServedTools::new(tools)),
            hooks: Hooks::default(),
            operation_steps: None,
            ..self.clone()
        }
    }
}
