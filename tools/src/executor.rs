//! The registry as an agent's executor of calls. It adds nothing to a call and takes nothing from it: a loop
//! says on what terms, the registry decides.

use std::sync::Arc;

use portcullis_policy::{ToolFacts, ToolOrigin};
use portcullis_types::{
    CallTerms, OfferedTool, SafetyTier, ToolCall, ToolError, ToolExecutor, ToolResult, async_trait,
};

use crate::{Caller, RegisteredTool, ToolRegistry, hint::hinted};

/// With nobody to ask, so that what needs an approval is denied. [`RegistryExecutor`] has somebody.
#[async_trait]
impl ToolExecutor for ToolRegistry {
    fn offers(&self) -> Vec<OfferedTool> {
        self.offered().map(|tool| offered(self, tool)).collect()
    }

    async fn execute(&self, call: ToolCall, terms: &CallTerms) -> ToolResult {
        self.execute_with_policy(call, &unapproving(terms)).await
    }

    fn refuse(&self, call: ToolCall, error: ToolError, terms: &CallTerms) -> ToolResult {
        Self::refuse(self, call, &unapproving(terms), error)
    }

    /// Guests have threads of their own, and so have native tools.
    fn never_blocks(&self) -> bool {
        true
    }

    fn run_ended(&self, agent_id: &str, run_id: &str) {
        self.end_run(&Caller::new(agent_id, run_id));
    }
}

/// A registry with what its callers have in common: who is asked for approvals, and what is to be asked or denied
/// beyond the policy file.
#[derive(Debug, Clone)]
pub struct RegistryExecutor {
    registry: Arc<ToolRegistry>,
    template: Caller,
    hint: Option<&'static str>,
}

impl RegistryExecutor {
    /// The registry for callers like this one. Agent, run, space, cancellation, deadline and events are those of
    /// each call's terms; all else is the template's.
    #[must_use]
    pub fn new(registry: Arc<ToolRegistry>, template: Caller) -> Self {
        Self { registry, template, hint: None }
    }

    /// The same, with a hint for calls that are denied because nobody can be asked. Default: none.
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
        // The template's, which may say that the agent named itself.
        let mut caller = self.template.clone();
        agent_id.clone_into(&mut caller.agent_id);
        run_id.clone_into(&mut caller.run_id);
        self.registry.end_run(&caller);
    }
}

/// The tier that counts: a declared one is not taken at its word where the policy does not, and a module that declares
/// none is no interface without tiers.
fn tier(registry: &ToolRegistry, facts: &ToolFacts) -> Option<SafetyTier> {
    let has_none = facts.declared_tier.is_none() && facts.origin == ToolOrigin::Native;
    (!has_none).then(|| registry.policy().describe(facts).tier)
}

/// A caller with nobody to ask.
fn unapproving(terms: &CallTerms) -> Caller {
    on_terms(Caller::new(terms.agent_id.clone(), terms.run_id.clone()), terms)
}

fn on_terms(mut caller: Caller, terms: &CallTerms) -> Caller {
    caller.space_id.clone_from(&terms.space_id);
    // One of its own, since a tool may fire the token that it is given, and that ends no call but its own.
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
