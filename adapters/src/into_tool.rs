//! [`IntoTool`]: a tool of any interface, as the registry takes tools.

use std::sync::Arc;

use portcullis_types::Tool;

/// A tool of one of the interfaces that this crate knows, our own among them.
///
/// The parameter lets the compiler find the interface: without it, one type could be promised two of them, and the
/// implementations for all types of an interface would overlap.
///
/// It stands here and not in `portcullis-tools`, because an implementation for all types of a trait must stand in the
/// crate of the trait that it implements (Rust reference, "Orphan rules").
pub trait IntoTool<Interface> {
    /// The tool, for [`RegistryBuilder::shared_tool`](portcullis_tools::RegistryBuilder::shared_tool).
    fn into_tool(self) -> Arc<dyn Tool>;
}

/// The interface of specification 004, which is our own.
#[derive(Debug, Clone, Copy)]
pub enum Own {}

impl<T: Tool + 'static> IntoTool<Own> for T {
    fn into_tool(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}
