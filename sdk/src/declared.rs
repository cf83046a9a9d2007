//! A tool with all the declarations that a registry or a module's `describe` needs.

use std::pin::Pin;

use portcullis_types::{StateType, Tool, ToolContext, ToolDeclaration, ToolError, ToolOutput};

use crate::ToolSpec;

/// The future of a running tool. It may move between threads.
pub type ToolFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;

/// A tool made by [`macro@crate::tool`].
///
/// A native registry uses the tool as a [`Tool`]. A module's entry point uses what this trait adds: it finds the
/// tool by the name in [`DeclaredTool::spec`] and runs the tool on the text of its arguments, which is decoded only
/// once.
pub trait DeclaredTool: Tool {
    /// The declarations of the attribute and the signature.
    fn spec(&self) -> &'static ToolSpec;

    /// Decodes the arguments, runs the function and converts its result.
    ///
    /// # Cancellation
    /// Dropping the future drops the function's future.
    fn run<'a>(&'a self, ctx: &'a ToolContext, arguments: &'a str) -> ToolFuture<'a, ToolOutput>;

    /// The types of the states that the function takes. Default: none.
    fn states(&self) -> Vec<StateType> {
        Vec::new()
    }

    /// The tool's answer to `describe`.
    fn declaration(&self) -> ToolDeclaration {
        self.spec().declaration()
    }
}

/// A tool that a module can export: every tool without state. The macro implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` takes a `&State<…>`, and a module keeps nothing between its calls",
    label = "a module cannot export this tool",
    note = "each call of a module starts in fresh memory: keep the data in a file, or add the tool to a native registry, whose builder takes `.tool_state(…)`"
)]
pub trait ModuleTool: DeclaredTool {}

/// A tool for a module's entry point.
pub fn module_tool<T: ModuleTool>(tool: &T) -> &dyn DeclaredTool {
    tool
}

/// [`Tool::execute`] of a declared tool: runs the tool in a detached context and joins the texts of its output.
pub fn execute<'a, T: DeclaredTool>(tool: &'a T, arguments: &'a str) -> ToolFuture<'a, String> {
    Box::pin(async move {
        let ctx = ToolContext::detached(tool.spec().name);
        tool.run(&ctx, arguments).await.map(|output| output.joined_text())
    })
}

/// Runs a function's future to its end on this thread, so that it need not be `Send`. It cannot be cancelled.
pub fn run_local<T>(future: impl Future<Output = T>) -> T {
    pollster::block_on(future)
}

/// The companions of a tool that only forward to its [`DeclaredTool`] implementation: the hidden functions,
/// and [`Tool`]. This is a macro, because the orphan rule forbids implementing `Tool` for every `DeclaredTool`.
#[doc(hidden)]
#[macro_export]
macro_rules! __forward_to_declared {
    // A tool without state.
    (
        $vis:vis $structure:ident,
        $constructor:ident,
        $function_decl:ident,
        $declaration:ident,
        $meta:ident
    ) => {
        impl $crate::__private::ModuleTool for $structure {}

        $crate::__forward_to_declared! {
            $vis $structure, $constructor, $function_decl, $declaration, $meta, stateful
        }
    };
    (
        $vis:vis $structure:ident,
        $constructor:ident,
        $function_decl:ident,
        $declaration:ident,
        $meta:ident,
        stateful
    ) => {
        #[doc(hidden)]
        #[must_use]
        $vis fn $function_decl() -> $crate::FunctionDecl {
            $crate::DeclaredTool::spec(&$structure).function_decl()
        }

        #[doc(hidden)]
        #[must_use]
        $vis fn $declaration() -> $crate::ToolDeclaration {
            $crate::DeclaredTool::spec(&$structure).declaration()
        }

        #[doc(hidden)]
        #[must_use]
        $vis fn $meta() -> $crate::ToolMeta {
            $crate::DeclaredTool::spec(&$structure).meta()
        }

        // Avoids a dead-code warning for a tool that is not exported yet.
        const _: () = {
            let _: fn() -> $structure = $constructor;
            let _: fn() -> $crate::FunctionDecl = $function_decl;
            let _: fn() -> $crate::ToolDeclaration = $declaration;
            let _: fn() -> $crate::ToolMeta = $meta;
        };

        impl $crate::Tool for $structure {
            fn schema(&self) -> $crate::FunctionDecl {
                $crate::DeclaredTool::spec(self).function_decl()
            }

            fn timeout(&self) -> ::core::time::Duration {
                $crate::DeclaredTool::spec(self).timeout()
            }

            fn safety_tier(&self) -> $crate::SafetyTier {
                $crate::DeclaredTool::spec(self).safety_tier()
            }

            fn declared_tier(&self) -> ::core::option::Option<$crate::SafetyTier> {
                $crate::DeclaredTool::spec(self).tier
            }

            fn policy(&self) -> $crate::ToolPolicy {
                $crate::DeclaredTool::spec(self).policy
            }

            fn label(&self) -> ::core::option::Option<::std::string::String> {
                $crate::DeclaredTool::spec(self).label()
            }

            fn roles(&self) -> ::std::vec::Vec<$crate::ArgumentRole> {
                $crate::DeclaredTool::spec(self).roles()
            }

            fn output_schema(&self) -> ::core::option::Option<$crate::JsonSchema> {
                $crate::DeclaredTool::spec(self).output_schema()
            }

            fn meta(&self) -> $crate::ToolMeta {
                $crate::DeclaredTool::spec(self).meta()
            }

            fn states(&self) -> ::std::vec::Vec<$crate::StateType> {
                $crate::DeclaredTool::states(self)
            }

            fn execute<'tool, 'args, 'future>(
                &'tool self,
                text: &'args ::core::primitive::str,
            ) -> $crate::ToolFuture<'future, ::std::string::String>
            where
                'tool: 'future,
                'args: 'future,
                Self: 'future,
            {
                $crate::__private::execute(self, text)
            }

            fn call<'tool, 'ctx, 'args, 'future>(
                &'tool self,
                ctx: &'ctx $crate::ToolContext,
                args: &'args $crate::ToolArgs,
            ) -> $crate::ToolFuture<'future, $crate::ToolOutput>
            where
                'tool: 'future,
                'ctx: 'future,
                'args: 'future,
                Self: 'future,
            {
                $crate::DeclaredTool::run(self, ctx, args.text())
            }
        }
    };
}
