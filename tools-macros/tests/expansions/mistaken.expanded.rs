// What the macros write; see `src/expansions.rs`.

::core::compile_error! {
    "a tool is asynchronous: write `async fn`"
}
::core::compile_error! {
    "`PathBuf` is not a parameter type: write `String` with `#[arg(path = \"read\")]` or `#[arg(path = \"write\")]`, so that the policy sees the path"
}
::core::compile_error! {
    "unknown tier `Readonly`; did you mean `ReadOnly`? (write one of `ReadOnly`, `SideEffecting`, `Privileged`)"
}
fn mistaken(path: PathBuf) -> String {
    String::new()
}
///The tool made of the function `mistaken`.
#[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
struct Mistaken;
///The tool made of the function `mistaken`.
#[must_use]
fn mistaken_tool() -> Mistaken {
    Mistaken
}
#[doc(hidden)]
#[must_use]
fn __tool_function_decl_mistaken() -> ::r#gate_sdk::__private::FunctionDecl {
    ::r#gate_sdk::__private::DeclaredTool::spec(&Mistaken).function_decl()
}
#[doc(hidden)]
#[must_use]
fn __tool_declaration_mistaken() -> ::r#gate_sdk::__private::ToolDeclaration {
    ::r#gate_sdk::__private::DeclaredTool::spec(&Mistaken).declaration()
}
#[doc(hidden)]
#[must_use]
fn __tool_meta_mistaken() -> ::r#gate_sdk::__private::ToolMeta {
    ::r#gate_sdk::__private::DeclaredTool::spec(&Mistaken).meta()
}
const _: () = {
    let _: fn() -> Mistaken = mistaken_tool;
    let _: fn() -> ::r#gate_sdk::__private::FunctionDecl = __tool_function_decl_mistaken;
    let _: fn() -> ::r#gate_sdk::__private::ToolDeclaration = __tool_declaration_mistaken;
    let _: fn() -> ::r#gate_sdk::__private::ToolMeta = __tool_meta_mistaken;
};
impl ::r#gate_sdk::__private::DeclaredTool for Mistaken {
    fn spec(&self) -> &'static ::r#gate_sdk::__private::ToolSpec {
        static __PORTCULLIS_SPEC: ::r#gate_sdk::__private::ToolSpec = ::r#gate_sdk::__private::ToolSpec::STUB;
        &__PORTCULLIS_SPEC
    }
    fn run<'__portcullis>(
        &'__portcullis self,
        __portcullis_ctx: &'__portcullis ::r#gate_sdk::__private::ToolContext,
        __portcullis_text: &'__portcullis ::core::primitive::str,
    ) -> ::r#gate_sdk::__private::ToolFuture<
        '__portcullis,
        ::r#gate_sdk::__private::ToolOutput,
    > {
        {
            let _ = (__portcullis_ctx, __portcullis_text);
            ::core::unreachable!()
        }
    }
}
impl ::r#gate_sdk::__private::Tool for Mistaken {
    fn schema(&self) -> ::r#gate_sdk::__private::FunctionDecl {
        ::r#gate_sdk::__private::DeclaredTool::spec(self).function_decl()
    }
    fn timeout(&self) -> ::core::time::Duration {
        ::r#gate_sdk::__private::DeclaredTool::spec(self).timeout()
    }
    fn safety_tier(&self) -> ::r#gate_sdk::__private::SafetyTier {
        ::r#gate_sdk::__private::DeclaredTool::spec(self).safety_tier()
    }
    fn declared_tier(
        &self,
    ) -> ::core::option::Option<::r#gate_sdk::__private::SafetyTier> {
        ::r#gate_sdk::__private::DeclaredTool::spec(self).tier
    }
    fn policy(&self) -> ::r#gate_sdk::__private::ToolPolicy {
        ::r#gate_sdk::__private::DeclaredTool::spec(self).policy
    }
    fn label(&self) -> ::core::option::Option<::std::string::String> {
        ::r#gate_sdk::__private::DeclaredTool::spec(self).label()
    }
    fn roles(&self) -> ::std::vec::Vec<::r#gate_sdk::__private::ArgumentRole> {
        ::r#gate_sdk::__private::DeclaredTool::spec(self).roles()
    }
    fn output_schema(
        &self,
    ) -> ::core::option::Option<::r#gate_sdk::__private::JsonSchema> {
        ::r#gate_sdk::__private::DeclaredTool::spec(self).output_schema()
    }
    fn meta(&self) -> ::r#gate_sdk::__private::ToolMeta {
        ::r#gate_sdk::__private::DeclaredTool::spec(self).meta()
    }
    fn execute<'__self, '__args, '__future>(
        &'__self self,
        __portcullis_text: &'__args ::core::primitive::str,
    ) -> ::r#gate_sdk::__private::ToolFuture<'__future, ::std::string::String>
    where
        '__self: '__future,
        '__args: '__future,
        Self: '__future,
    {
        ::r#gate_sdk::__private::execute(self, __portcullis_text)
    }
    fn call<'__self, '__ctx, '__args, '__future>(
        &'__self self,
        __portcullis_ctx: &'__ctx ::r#gate_sdk::__private::ToolContext,
        __portcullis_args: &'__args ::r#gate_sdk::__private::ToolArgs,
    ) -> ::r#gate_sdk::__private::ToolFuture<
        '__future,
        ::r#gate_sdk::__private::ToolOutput,
    >
    where
        '__self: '__future,
        '__ctx: '__future,
        '__args: '__future,
        Self: '__future,
    {
        ::r#gate_sdk::__private::DeclaredTool::run(
            self,
            __portcullis_ctx,
            __portcullis_args.text(),
        )
    }
}
