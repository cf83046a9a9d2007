//! [`IntoTool`]: converts a tool of any supported interface into a tool for the registry.

use std::sync::Arc;

use portcullis_types::Tool;

/// A tool of one of the supported interfaces, including that of Portcullis.
///
/// The parameter names the interface. Each interface has a blanket implementation for all its tools, and these would
/// overlap without the parameter (coherence).
///
/// The trait is in this crate instead of `portcullis-tools`, because a blanket implementation must be in the crate of
/// its trait (Rust reference, "Orphan rules").
pub trait IntoTool<Interface> {
    /// Converts the tool for
    /// [`RegistryBuilder::shared_tool`](portcullis_tools::RegistryBuilder::shared_tool).
    fn into_tool(self) -> Arc<dyn Tool>;
}

/// The interface of Portcullis itself.
#[derive(Debug, Clone, Copy)]
pub enum Portcullis {}

impl<T: Tool + 'static> IntoTool<Portcullis> for T {
    fn into_tool(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}
