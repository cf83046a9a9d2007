//! Implements the agent loop's tool executor for the registry. It only forwards calls: the loop sets deadline
//! and cancellation, and the registry decides.

use std::sync::Arc;

use portcullis_policy::{ToolDescriptor, ToolOrigin};
use portcullis_types::{
    CallContext, OfferedTool, SafetyTier, ToolCall, ToolError, ToolExecutor, ToolResult, async_trait,
};

use crate::{Caller, RegisteredTool, ToolRegistry, approval_hint::with_approval_hint};

/// Has no approver, so calls that need an approval are denied. [`RegistryExecutor`] can have one.
#[async_trait]
impl ToolExecutor for ToolRegistry {
    fn offers(&self) -> Vec<OfferedTool> {
        self.offered().iter().map(|tool| offered_tool(self, tool)).collect()
    }

    async fn execute(&self, call: ToolCall, context: &CallContext) -> ToolResult {
        self.execute_with_policy(call, &caller_without_approver(context)).await
    }

    fn refuse(&self, call: ToolCall, error: ToolError, context: &CallContext) -> ToolResult {
        Self::refuse(self, call, &caller_without_approver(context), error)
    }

    /// Always true: guests and native tools run on their own threads.
    fn never_blocks(&self) -> bool {
        true
    }

    fn run_ended(&self, agent_id: &str, run_id: &str) {
        self.end_run(&Caller::new(agent_id, run_id));
    }
}

/// A registry with settings that its callers share, such as the approver and the approval policy.
#[derive(Debug, Clone)]
pub struct RegistryExecutor {
    registry: Arc<ToolRegistry>,
    template: Caller,
    hint: Option<&'static str>,
    /// Whether the run continues after a loop's run has ended.
    is_run_continued: bool,
}

impl RegistryExecutor {
    /// Creates an executor for callers like `template`. Agent, run, space, cancellation, deadline and events
    /// come from the context of each call. All other settings come from the template.
    #[must_use]
    pub fn new(registry: Arc<ToolRegistry>, template: Caller) -> Self {
        Self { registry, template, hint: None, is_run_continued: false }
    }

    /// Continues the run across several runs of the loop, as a conversation of several prompts does: shell
    /// sessions and the labels of data that the run has read are kept. The program calls
    /// [`ToolRegistry::end_run`] at the end of the conversation. Default: each run of the loop is a separate
    /// run.
    #[must_use]
    pub fn with_continued_run(mut self) -> Self {
        self.is_run_continued = true;
        self
    }

    /// Adds a hint to calls that are denied because there is no approver. Default: no hint.
    #[must_use]
    pub fn with_hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    fn caller(&self, context: &CallContext) -> Caller {
        let mut caller = self.template.clone();
        caller.agent_id.clone_from(&context.agent_id);
        caller.run_id.clone_from(&context.run_id);
        apply_context(caller, context)
    }
}

#[async_trait]
impl ToolExecutor for RegistryExecutor {
    fn offers(&self) -> Vec<OfferedTool> {
        let mut offers = self.registry.offers();
        offers.retain(|offer| self.template.may_call(&offer.decl.name));
        offers
    }

    async fn execute(&self, call: ToolCall, context: &CallContext) -> ToolResult {
        let result = self.registry.execute_with_policy(call, &self.caller(context)).await;
        match self.hint {
            Some(hint) => with_approval_hint(result, hint),
            None => result,
        }
    }

    fn refuse(&self, call: ToolCall, error: ToolError, context: &CallContext) -> ToolResult {
        ToolRegistry::refuse(&self.registry, call, &self.caller(context), error)
    }

    fn never_blocks(&self) -> bool {
        self.registry.never_blocks()
    }

    fn run_ended(&self, agent_id: &str, run_id: &str) {
        if self.is_run_continued {
            return;
        }
        // Start from the template, which records whether the client chose its name itself.
        let mut caller = self.template.clone();
        agent_id.clone_into(&mut caller.agent_id);
        run_id.clone_into(&mut caller.run_id);
        self.registry.end_run(&caller);
    }
}

/// Returns the effective tier. The policy's tier takes precedence over the declared one. Only native,
/// external and HTTP tools can have no tier; a module without a declared tier gets the policy's tier.
fn tier(registry: &ToolRegistry, descriptor: &ToolDescriptor) -> Option<SafetyTier> {
    let has_none = descriptor.declared_tier.is_none()
        && matches!(descriptor.origin, ToolOrigin::Native | ToolOrigin::External | ToolOrigin::Http);
    (!has_none).then(|| registry.policy().describe(descriptor).tier)
}

/// A caller without an approver.
fn caller_without_approver(context: &CallContext) -> Caller {
    apply_context(Caller::new(context.agent_id.clone(), context.run_id.clone()), context)
}

fn apply_context(mut caller: Caller, context: &CallContext) -> Caller {
    caller.space_id.clone_from(&context.space_id);
    // A child token: a tool may cancel the token that it gets, which must end only its own call.
    caller.cancel = context.cancel.child_token();
    caller.turn_deadline = context.turn_deadline;
    caller.on_event.clone_from(&context.on_event);
    caller
}

fn offered_tool(registry: &ToolRegistry, tool: &RegisteredTool) -> OfferedTool {
    let descriptor = tool.descriptor();
    OfferedTool {
        decl: tool.decl().clone(),
        label: tool.label().map(str::to_owned),
        tier: tier(registry, descriptor),
    }
}
