//! [`IntoTool`]: what can be registered as a tool of this process.

use std::{fmt, sync::Arc};

use portcullis_types::{SafetyTier, Tool};

/// What [`crate::RegistryBuilder::tool`] takes: a [`Tool`], or a tool of one of the other interfaces.
///
/// The parameter is there for the compiler, which finds it by itself: without it, one type could be promised
/// two interfaces.
pub trait IntoTool<Interface> {
    /// The tool, as the registry knows tools.
    fn into_tool(self) -> Native;
}

/// A tool of this process, with what its own interface says of it.
#[derive(Clone)]
pub struct Native {
    pub(crate) tool: Arc<dyn Tool>,
    /// None for an author who says nothing of it, or an interface that has no tiers: the policy counts it as
    /// side-effecting.
    pub(crate) declared_tier: Option<SafetyTier>,
}

impl Native {
    /// A tool that says itself which tier it declares, if any.
    pub(crate) fn declaring(tool: Arc<dyn Tool>) -> Self {
        Self { declared_tier: tool.declared_tier(), tool }
    }

    /// A tool whose interface has no tiers.
    pub(crate) fn undeclared(tool: impl Tool + 'static) -> Self {
        Self { tool: Arc::new(tool), declared_tier: None }
    }
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native").field("declared_tier", &self.declared_tier).finish_non_exhaustive()
    }
}

/// The interface of specification 004, which is our own.
#[derive(Debug, Clone, Copy)]
pub enum Own {}

impl<T: Tool + 'static> IntoTool<Own> for T {
    fn into_tool(self) -> Native {
        Native::declaring(Arc::new(self))
    }
}
