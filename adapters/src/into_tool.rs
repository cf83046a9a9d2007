//! [`IntoTool`]: converts a tool of any supported interface into a tool for the registry.

use std::sync::Arc;

use portcullis_types::Tool;

/// A tool of one of the supported interfaces, including the interface of Portcullis.
///
/// The parameter names the interface. Each interface has a blanket implementation for all its tools. Without
/// the parameter, these implementations would overlap (coherence).
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
