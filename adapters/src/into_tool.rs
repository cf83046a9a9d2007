//! [`IntoTool`]: converts a tool of any interface into one for the registry.

use std::sync::Arc;

use portcullis_types::Tool;

/// A tool of one of the supported interfaces, our own among them.
///
/// The parameter names the interface. Without it the blanket implementations, one for all tools of each
/// interface, would overlap.
///
/// The trait is here and not in `portcullis-tools`, because a blanket implementation must be in the crate of
/// its trait (Rust reference, "Orphan rules").
pub trait IntoTool<Interface> {
    /// Converts the tool for
    /// [`RegistryBuilder::shared_tool`](portcullis_tools::RegistryBuilder::shared_tool).
    fn into_tool(self) -> Arc<dyn Tool>;
}

/// The interface of specification 004, which is our own.
#[derive(Debug, Clone, Copy)]
pub enum Portcullis {}

impl<T: Tool + 'static> IntoTool<Portcullis> for T {
    fn into_tool(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}
