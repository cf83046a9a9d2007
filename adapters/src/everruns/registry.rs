//! Everruns' builder of a registry, for tools of any interface.

use portcullis_tools::{BootstrapError, native::Capability};

use crate::IntoTool;

/// The entry point under the name that Everruns uses. It builds a [`portcullis_tools::ToolRegistry`].
#[derive(Debug)]
pub enum ToolRegistry {}

impl ToolRegistry {
    /// Creates a builder without tools.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder(portcullis_tools::ToolRegistry::builder())
    }

    /// Creates a registry of the shipped native tools. It uses the operator's policy if there is one, and the
    /// shipped policy otherwise.
    ///
    /// # Errors
    /// Like [`portcullis_tools::RegistryBuilder::build`].
    pub fn with_defaults() -> Result<portcullis_tools::ToolRegistry, BootstrapError> {
        portcullis_tools::ToolRegistry::with_defaults()
    }
}

/// Builds a registry from tools of any interface.
#[derive(Debug)]
#[must_use = "nothing is built before `build`"]
pub struct RegistryBuilder(portcullis_tools::RegistryBuilder);

impl RegistryBuilder {
    /// Adds a native tool. It runs in this process, outside the sandbox, so its calls are denied unless the
    /// policy enables the tool by name (`[tools.NAME] enabled = true`).
    pub fn tool<Interface>(self, tool: impl IntoTool<Interface>) -> Self {
        Self(self.0.shared_tool(tool.into_tool()))
    }

    /// Adds the shipped native tools: time, echo, arithmetic, and the tool that always fails.
    pub fn default_tools(self) -> Self {
        Self(self.0.default_tools())
    }

    /// Adds a capability's tools, except those that the builder already has.
    pub fn capability(self, capability: Capability) -> Self {
        Self(self.0.capability(capability))
    }

    /// Builds the registry.
    ///
    /// # Errors
    /// Like [`portcullis_tools::RegistryBuilder::build`].
    pub fn build(self) -> Result<portcullis_tools::ToolRegistry, BootstrapError> {
        self.0.build()
    }
}

impl From<portcullis_tools::RegistryBuilder> for RegistryBuilder {
    fn from(builder: portcullis_tools::RegistryBuilder) -> Self {
        Self(builder)
    }
}
