//! The registry as the one who runs the calls of an agent's loop (specification 000, "ToolRegistry").

use std::{fmt, sync::Arc};

use portcullis_tools::{
    Caller, ToolRegistry,
    approval::{ApprovalPolicy, Approver},
    policy::Approval,
};
use portcullis_types::{ToolCall, ToolResult, async_trait};

use crate::agent::{CallTerms, OfferedTool, ToolExecutor};

/// A registry with somebody who is asked for approvals. [`RegistryExecutor::new`] asks nobody, which denies
/// what needs one.
#[derive(Clone)]
pub struct RegistryExecutor {
    registry: Arc<ToolRegistry>,
    approver: Option<Arc<dyn Approver>>,
    approval_policy: Option<Arc<dyn ApprovalPolicy>>,
}

impl RegistryExecutor {
    /// The registry, and nobody who is asked.
    #[must_use]
    pub fn new(registry: Arc<ToolRegistry>) -> Self {
        Self { registry, approver: None, approval_policy: None }
    }

    /// The same with somebody who is asked.
    #[must_use]
    pub fn with_approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// The same with what is asked or denied beyond the policy file.
    #[must_use]
    pub fn with_approval_policy(mut self, policy: Arc<dyn ApprovalPolicy>) -> Self {
        self.approval_policy = Some(policy);
        self
    }

    /// The registry.
    #[must_use]
    pub fn registry(&self) -> &ToolRegistry {
        &self.registry
    }
}

impl fmt::Debug for RegistryExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryExecutor")
            .field("approver", &self.approver.is_some())
            .field("approval_policy", &self.approval_policy.is_some())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ToolExecutor for RegistryExecutor {
    fn offers(&self) -> Vec<OfferedTool> {
        self.registry.offers()
    }

    async fn execute(&self, call: ToolCall, terms: &CallTerms) -> ToolResult {
        let mut caller = caller(terms);
        caller.approver.clone_from(&self.approver);
        caller.approval_policy.clone_from(&self.approval_policy);
        self.registry.execute_with_policy(call, &caller).await
    }
}

/// Nobody is asked for approvals.
#[async_trait]
impl ToolExecutor for ToolRegistry {
    /// Every tool that the policy does not refuse altogether.
    fn offers(&self) -> Vec<OfferedTool> {
        let allowed = self.tools().filter(|tool| {
            self.assignment(tool).is_ok_and(|assignment| assignment.approval != Approval::Deny)
        });
        let offered = allowed.map(|tool| OfferedTool {
            decl: tool.decl().clone(),
            label: tool.label().map(str::to_owned),
            tier: tool.facts().declared_tier,
        });
        offered.collect()
    }

    async fn execute(&self, call: ToolCall, terms: &CallTerms) -> ToolResult {
        self.execute_with_policy(call, &caller(terms)).await
    }
}

fn caller(terms: &CallTerms) -> Caller {
    let mut caller = Caller::new(terms.agent_id.clone(), terms.run_id.clone());
    caller.space_id.clone_from(&terms.space_id);
    caller.cancel = terms.cancel.clone();
    caller.turn_deadline = terms.turn_deadline;
    caller.on_event.clone_from(&terms.on_event);
    caller
}
