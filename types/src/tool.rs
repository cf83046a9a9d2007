//! The trait [`Tool`] and the safety tiers. The policy decides which calls are allowed.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    ArgumentRole, FunctionDecl, JsonSchema, StateType, ToolArgs, ToolContext, ToolError, ToolMeta, ToolOutput,
};

/// The timeout of a tool that declares none: 30 seconds.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A tool that runs in this process.
///
/// Implement [`Tool::execute`]. A tool that needs its context also implements [`Tool::call`], which is the
/// only method that the registry calls. The specification defines the four required methods; the provided
/// methods are additions of the registry. The registry reads all descriptive methods once, at registration.
/// It calls [`Tool::call`] once per admitted call, on an executor thread, with the deadline already running.
/// The registry is the only caller.
#[async_trait]
pub trait Tool: Send + Sync {
    /// The declaration for a model.
    fn schema(&self) -> FunctionDecl;

    /// Runs the tool on the JSON text of its arguments, which the registry has validated.
    ///
    /// # Errors
    /// Any failure that the tool reports. The error's message reaches the model unless the kind is `internal`.
    ///
    /// # Cancellation
    /// The future is dropped at the deadline or when the call is cancelled.
    async fn execute(&self, args: &str) -> Result<String, ToolError>;

    /// The timeout of one call. The policy may shorten it.
    fn timeout(&self) -> Duration;

    /// The safety tier of the tool. A tool that declares no tier returns the tier that the policy assumes.
    fn safety_tier(&self) -> SafetyTier;

    /// The tier that the author declares; `None` if the author declares none. The policy then treats the tool
    /// as [`SafetyTier::SideEffecting`], and an agent's loop knows that the tool declares no effects.
    /// Default: [`Tool::safety_tier`].
    fn declared_tier(&self) -> Option<SafetyTier> {
        Some(self.safety_tier())
    }

    /// The tool's own approval requirement, in addition to the policy's and independent of the tier. Default:
    /// [`ToolPolicy::Auto`].
    fn policy(&self) -> ToolPolicy {
        ToolPolicy::Auto
    }

    /// A name for people. Default: none, so the tool's name is shown.
    fn label(&self) -> Option<String> {
        None
    }

    /// The arguments that are paths, URLs or commands. Default: none.
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

    /// The types of the states that the tool takes. A registry refuses a tool if it lacks one of these
    /// states. Default: none.
    fn states(&self) -> Vec<StateType> {
        Vec::new()
    }

    /// Runs the tool with its context. Default: runs [`Tool::execute`] on the argument text, and turns its string into
    /// one text block.
    ///
    /// # Errors
    /// Same as [`Tool::execute`].
    ///
    /// # Cancellation
    /// Same as [`Tool::execute`]; `ctx.cancel` is cancelled earlier.
    async fn call(&self, ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        let _ = ctx;
        self.execute(args.text()).await.map(ToolOutput::text)
    }
}

crate::word_enum! {
    /// How dangerous a tool is. The tier decides the tool's default profile and approval.
    ///
    /// Ordered from harmless to dangerous, so the maximum of two tiers is the stricter one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum SafetyTier as "tier" {
        /// The tool has no side effects.
        ReadOnly = "read_only",
        /// The tool changes state within the sandbox.
        SideEffecting = "side_effecting",
        /// The tool performs high-risk operations.
        Privileged = "privileged",
    }
}

/// A tool's own approval requirement, in addition to the policy's. Default: `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolPolicy {
    /// A call runs immediately if the tier and the policy file allow it.
    #[default]
    Auto,
    /// A call waits for an approval, regardless of the tier.
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
            assert_eq!(serde_json::to_value(tier).expect("serializes"), tier.as_str());
        }
        assert!("readonly".parse::<SafetyTier>().is_err());
    }
}
