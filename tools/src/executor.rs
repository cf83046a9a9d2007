//! The registry as an agent's executor of calls. It only passes calls on: the loop sets the terms, the
//! registry decides.

use std::sync::Arc;

use portcullis_policy::{ToolFacts, ToolOrigin};
use portcullis_types::{
    CallTerms, OfferedTool, SafetyTier, ToolCall, ToolError, ToolExecutor, ToolResult, async_trait,
};

use crate::{Caller, RegisteredTool, ToolRegistry, hint::hinted};

/// Without an approver: calls that need an approval are denied. [`RegistryExecutor`] can have an approver.
#[async_trait]
impl ToolExecutor for ToolRegistry {
    fn offers(&self) -> Vec<OfferedTool> {
        self.offered().iter().map(|tool| offered(self, tool)).collect()
    }

    async fn execute(&self, call: ToolCall, terms: &CallTerms) -> ToolResult {
        self.execute_with_policy(call, &unapproving(terms)).await
    }

    fn refuse(&self, call: ToolCall, error: ToolError, terms: &CallTerms) -> ToolResult {
        Self::refuse(self, call, &unapproving(terms), error)
    }

    /// Guests and native tools run on threads of their own.
    fn never_blocks(&self) -> bool {
        true
    }

    fn run_ended(&self, agent_id: &str, run_id: &str) {
        self.end_run(&Caller::new(agent_id, run_id));
    }
}

/// A registry with the common settings of its callers: the approver and the approval policy.
#[derive(Debug, Clone)]
pub struct RegistryExecutor {
    registry: Arc<ToolRegistry>,
    template: Caller,
    hint: Option<&'static str>,
}

impl RegistryExecutor {
    /// An executor for callers like `template`. Agent, run, space, cancellation, deadline and events come
    /// from each call's terms; everything else comes from the template.
    #[must_use]
    pub fn new(registry: Arc<ToolRegistry>, template: Caller) -> Self {
        Self { registry, template, hint: None }
    }

    /// Adds a hint for calls that are denied for want of an approver. Default: none.
    #[must_use]
    pub fn with_hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    fn caller(&self, terms: &CallTerms) -> Caller {
        let mut caller = self.template.clone();
        caller.agent_id.clone_from(&terms.agent_id);
        caller.run_id.clone_from(&terms.run_id);
        on_terms(caller, terms)
    }
}

#[async_trait]
impl ToolExecutor for RegistryExecutor {
    fn offers(&self) -> Vec<OfferedTool> {
        self.registry.offers()
    }

    async fn execute(&self, call: ToolCall, terms: &CallTerms) -> ToolResult {
        let result = self.registry.execute_with_policy(call, &self.caller(terms)).await;
        match self.hint {
            Some(hint) => hinted(result, hint),
            None => result,
        }
    }

    fn refuse(&self, call: ToolCall, error: ToolError, terms: &CallTerms) -> ToolResult {
        ToolRegistry::refuse(&self.registry, call, &self.caller(terms), error)
    }

    fn never_blocks(&self) -> bool {
        self.registry.never_blocks()
    }

    fn run_ended(&self, agent_id: &str, run_id: &str) {
        // Start from the template, which may say that the client chose its name itself.
        let mut caller = self.template.clone();
        agent_id.clone_into(&mut caller.agent_id);
        run_id.clone_into(&mut caller.run_id);
        self.registry.end_run(&caller);
    }
}

/// The effective tier. The policy may overrule a declared one. Only a native tool can be without a tier; a
/// module that declares none gets the policy's.
fn tier(registry: &ToolRegistry, facts: &ToolFacts) -> Option<SafetyTier> {
    let has_none = facts.declared_tier.is_none() && facts.origin == ToolOrigin::Native;
    (!has_none).then(|| registry.policy().describe(facts).tier)
}

/// A caller without an approver.
fn unapproving(terms: &CallTerms) -> Caller {
    on_terms(Caller::new(terms.agent_id.clone(), terms.run_id.clone()), terms)
}

fn on_terms(mut caller: Caller, terms: &CallTerms) -> Caller {
    caller.space_id.clone_from(&terms.space_id);
    // A child token: a tool may fire the token that it gets, which must end only its own call.
    caller.cancel = terms.cancel.child_token();
    caller.turn_deadline = terms.turn_deadline;
    caller.on_event.clone_from(&terms.on_event);
    caller
}

fn offered(registry: &ToolRegistry, tool: &RegisteredTool) -> OfferedTool {
    let facts = tool.facts();
    OfferedTool {
        decl: tool.decl().clone(),
        label: tool.label().map(str::to_owned),
        tier: tier(registry, facts),
    }
}
