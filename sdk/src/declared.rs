//! A tool with all declarations that a registry or a module's `describe` needs.

use std::pin::Pin;

use portcullis_types::{Tool, ToolContext, ToolDeclaration, ToolError, ToolOutput};

use crate::ToolSpec;

/// The future of a running tool; it may move between threads.
pub type ToolFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;

/// A tool made by [`macro@crate::tool`].
///
/// A native registry uses it as a [`Tool`]. A module's entry point uses what this trait adds: it finds the
/// tool by the name in [`DeclaredTool::spec`] and runs it on the text of its arguments, without decoding it
/// twice.
pub trait DeclaredTool: Tool {
    /// The declarations of the attribute and the signature.
    fn spec(&self) -> &'static ToolSpec;

    /// Decodes the arguments, runs the function and converts its result.
    ///
    /// # Cancellation
    /// Dropping the future drops the function's future.
    fn run<'a>(&'a self, ctx: &'a ToolContext, arguments: &'a str) -> ToolFuture<'a, ToolOutput>;

    /// The tool's answer to `describe`.
    fn declaration(&self) -> ToolDeclaration {
        self.spec().declaration()
    }
}

/// [`Tool::execute`] of a declared tool: runs it in a detached context and joins its text.
pub fn execute<'a, T: DeclaredTool>(tool: &'a T, arguments: &'a str) -> ToolFuture<'a, String> {
    Box::pin(async move {
        let ctx = ToolContext::detached(tool.spec().name);
        tool.run(&ctx, arguments).await.map(|output| output.joined_text())
    })
}

/// Runs a function's future to its end on this thread, so that it need not be `Send`. It cannot be dropped
/// meanwhile.
pub fn run_local<T>(future: impl Future<Output = T>) -> T {
    pollster::block_on(future)
}
