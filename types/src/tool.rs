//! The trait [`Tool`] and the safety tiers. The policy decides which calls are allowed.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ArgumentRole, FunctionDecl, JsonSchema, ToolArgs, ToolContext, ToolError, ToolMeta, ToolOutput};

/// The time limit of a tool that declares none: 30 seconds.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A tool that runs in this process (specification 004, "The Tool Trait").
///
/// The four required methods are those of the specification. The provided ones carry the registry's further
/// needs. The registry reads all descriptive methods once, at registration, and calls [`Tool::call`] once per
/// admitted call, on an executor thread, with the deadline already running. It is the only caller.
#[async_trait]
pub trait Tool: Send + Sync {
    /// The declaration for a model.
    fn schema(&self) -> FunctionDecl;

    /// Runs the tool on the JSON text of its arguments, which the registry has validated.
    ///
    /// # Errors
    /// Any failure that the tool reports; its message reaches the model unless its kind is `internal`.
    ///
    /// # Cancellation
    /// The future is dropped at the deadline or when the call is cancelled.
    async fn execute(&self, args: &str) -> Result<String, ToolError>;

    /// The time limit of one call. The policy may shorten it.
    fn timeout(&self) -> Duration;

    /// The safety tier of the tool; if it declares none, the tier that it counts as.
    fn safety_tier(&self) -> SafetyTier;

    /// The tier that the tool's author declares. Default: [`Tool::safety_tier`]. None if the author declares
    /// none: the policy then counts the tool as [`SafetyTier::SideEffecting`], and an agent's loop knows that
    /// no effects were declared.
    fn declared_tier(&self) -> Option<SafetyTier> {
        Some(self.safety_tier())
    }

    /// Whether every call needs an approval, independent of the tier. Default: [`ToolPolicy::Auto`].
    fn policy(&self) -> ToolPolicy {
        ToolPolicy::Auto
    }

    /// A name for people. Default: none; then the tool's name is shown.
    fn label(&self) -> Option<String> {
        None
    }

    /// Which arguments are paths, URLs or commands. Default: none.
    fn roles(&self) -> Vec<ArgumentRole> {
        Vec::new()
    }

    /// The schema of structured results. Default: none.
    fn output_schema(&self) -> Option<JsonSchema> {
        None
    }

    /// Hints for the registry. Default: none.
    fn meta(&self) -> ToolMeta {
        ToolMeta::default()
    }

    /// Runs the tool with its context. Default: [`Tool::execute`] on the argument text; its string becomes
    /// one text block.
    ///
    /// # Errors
    /// Same as [`Tool::execute`].
    ///
    /// # Cancellation
    /// Same as [`Tool::execute`]; `ctx.cancel` fires earlier.
    async fn call(&self, ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        let _ = ctx;
        self.execute(args.text()).await.map(ToolOutput::text)
    }
}

crate::words! {
    /// The danger of a tool; decides its default profile and approval (specification 004, "Safety Tiers").
    ///
    /// Ordered from harmless to dangerous: the stricter of two tiers is their maximum.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum SafetyTier as "tier" {
        /// No side effects.
        ReadOnly = "read_only",
        /// Changes state within the sandbox.
        SideEffecting = "side_effecting",
        /// High-risk operations.
        Privileged = "privileged",
    }
}

/// Whether a tool's calls need approval (specification 000, "Tool Policies"). Default: `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolPolicy {
    /// Runs at once, if tier and policy file allow it.
    #[default]
    Auto,
    /// Waits for an approval, independent of the tier.
    RequiresApproval,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Greet;

    #[async_trait]
    impl Tool for Greet {
        fn schema(&self) -> FunctionDecl {
            FunctionDecl { name: "greet".into(), description: None, parameters: JsonSchema::empty_object() }
        }
        async fn execute(&self, args: &str) -> Result<String, ToolError> {
            Ok(format!("hello {args}"))
        }
        fn timeout(&self) -> Duration {
            DEFAULT_TIMEOUT
        }
        fn safety_tier(&self) -> SafetyTier {
            SafetyTier::ReadOnly
        }
    }

    #[test]
    fn call_defaults_to_execute_on_the_argument_text() {
        let args = ToolArgs::parse("{\"a\":1}").expect("valid JSON");
        let output = pollster::block_on(Greet.call(&ToolContext::detached("greet"), &args));
        assert_eq!(output.expect("greet cannot fail"), ToolOutput::text("hello {\"a\":1}"));
    }

    #[test]
    fn the_declared_tier_defaults_to_what_the_tool_counts_as() {
        assert_eq!(Greet.declared_tier(), Some(SafetyTier::ReadOnly));
    }

    #[test]
    fn tiers_are_ordered_from_harmless_to_dangerous() {
        assert!(SafetyTier::ReadOnly < SafetyTier::SideEffecting);
        assert!(SafetyTier::SideEffecting < SafetyTier::Privileged);
        for tier in SafetyTier::ALL {
            assert_eq!(tier.as_str().parse::<SafetyTier>(), Ok(tier));
            assert_eq!(serde_json::to_value(tier).expect("serialises"), tier.as_str());
        }
        assert!("readonly".parse::<SafetyTier>().is_err());
    }
}
