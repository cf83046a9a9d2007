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
///The tool made from the function `mistaken`.
#[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
struct Mistaken;
///The tool made from the function `mistaken`.
#[must_use]
fn mistaken_tool() -> Mistaken {
    Mistaken
}
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
::r#gate_sdk::__private::forward_to_declared! {
    Mistaken, mistaken_tool, __tool_function_decl_mistaken, __tool_declaration_mistaken,
    __tool_meta_mistaken
}
