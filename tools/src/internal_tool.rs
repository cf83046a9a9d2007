//! Internal tools, which run no code. A call returns its arguments, so that the program that shows the run
//! can render them.

use portcullis_policy::{OutputBytes, PinStatus, ToolDescriptor, ToolOrigin};
use portcullis_types::{FunctionDecl, SafetyTier, ToolMeta, ToolPolicy};

use crate::{registered::parse_name, registry::RegistryError};

/// A tool without code, such as one that makes the user interface draw a chart. Its result is
/// `{"success": true, "args": ARGUMENTS}`.
#[derive(Debug, Clone)]
pub struct InternalTool {
    /// The declaration for the model.
    pub decl: FunctionDecl,
    /// A name for people. Default: the tool's own name.
    pub label: Option<String>,
    /// Whether every call needs an approval.
    pub policy: ToolPolicy,
    /// Hints for the registry.
    pub meta: ToolMeta,
}

impl InternalTool {
    /// Creates a tool with this declaration and no required approval.
    #[must_use]
    pub fn new(decl: FunctionDecl) -> Self {
        Self { decl, label: None, policy: ToolPolicy::Auto, meta: ToolMeta::default() }
    }

    /// Returns the descriptor that the policy judges the tool by. A call has no effect.
    pub(crate) fn descriptor(&self) -> Result<ToolDescriptor, RegistryError> {
        let name = parse_name(&self.decl.name, &self.decl.name)?;
        Ok(ToolDescriptor {
            declared_tier: Some(SafetyTier::ReadOnly),
            declared_policy: self.policy,
            declared_max_output: self.meta.output_cap_bytes.map(OutputBytes),
            pin_status: PinStatus::Unpinned,
            ..ToolDescriptor::undeclared(name, ToolOrigin::Internal)
        })
    }
}
