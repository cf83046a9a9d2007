// What the macros write; see `src/expansions.rs`.

async fn now() {}
const _: () = {
    #[deprecated(
        note = "tool `now` has no documentation, and a model chooses by it: write `///` and what the tool does above the function"
    )]
    const UNDOCUMENTED_TOOL: () = ();
    UNDOCUMENTED_TOOL
};
///The tool made of the function `now`.
#[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
struct Now;
///The tool made of the function `now`.
#[must_use]
fn now_tool() -> Now {
    Now
}
#[doc(hidden)]
#[must_use]
fn __tool_function_decl_now() -> ::r#gate_sdk::__private::FunctionDecl {
    ::r#gate_sdk::__private::DeclaredTool::spec(&Now).function_decl()
}
#[doc(hidden)]
#[must_use]
fn __tool_declaration_now() -> ::r#gate_sdk::__private::ToolDeclaration {
    ::r#gate_sdk::__private::DeclaredTool::spec(&Now).declaration()
}
#[doc(hidden)]
#[must_use]
fn __tool_meta_now() -> ::r#gate_sdk::__private::ToolMeta {
    ::r#gate_sdk::__private::DeclaredTool::spec(&Now).meta()
}
const _: () = {
    let _: fn() -> Now = now_tool;
    let _: fn() -> ::r#gate_sdk::__private::FunctionDecl = __tool_function_decl_now;
    let _: fn() -> ::r#gate_sdk::__private::ToolDeclaration = __tool_declaration_now;
    let _: fn() -> ::r#gate_sdk::__private::ToolMeta = __tool_meta_now;
};
impl ::r#gate_sdk::__private::DeclaredTool for Now {
    fn spec(&self) -> &'static ::r#gate_sdk::__private::ToolSpec {
        static __PORTCULLIS_SPEC: ::r#gate_sdk::__private::ToolSpec = ::r#gate_sdk::__private::ToolSpec {
            name: "now",
            label: ::core::option::Option::None,
            description: ::core::option::Option::None,
            tier: ::core::option::Option::None,
            timeout_ms: ::core::option::Option::None,
            policy: ::r#gate_sdk::__private::ToolPolicy::Auto,
            profile: ::core::option::Option::None,
            unknown_keys: ::r#gate_sdk::__private::UnknownKeys::Ignore,
            params: &[],
            output_schema: || ::core::option::Option::None,
            hints: ::r#gate_sdk::__private::Hints {
                aliases: &[],
                idempotent: false,
                hidden: false,
                output_cap_bytes: ::core::option::Option::None,
            },
        };
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
        ::std::boxed::Box::pin(async move {
            {
                #[allow(unused_imports)]
                use ::r#gate_sdk::__private::{CannotDecode as _, Decodes as _};
                let mut __portcullis_fields = ::r#gate_sdk::__private::Fields::parse(
                    __portcullis_text,
                    ::r#gate_sdk::__private::DeclaredTool::spec(self),
                );
                let (true,) = (__portcullis_fields.complete(),) else {
                    return ::core::result::Result::Err(__portcullis_fields.into_error());
                };
            }
            #[allow(unused_imports)]
            use ::r#gate_sdk::__private::returned::{
                AnyError as _, AnyOutput as _, DataOutput as _, KnownError as _,
                KnownOutput as _, NestedResult as _, PlainValue as _, ResultValue as _,
                StandardError as _,
            };
            #[allow(clippy::let_unit_value)]
            let __portcullis_returned = now().await;
            match (&&::r#gate_sdk::__private::returned::Ask::about(
                &__portcullis_returned,
            ))
                .split()
                .split(__portcullis_returned)
            {
                ::core::result::Result::Ok(__portcullis_value) => {
                    (&&&&::r#gate_sdk::__private::returned::Ask::about(
                        &__portcullis_value,
                    ))
                        .output()
                        .output(__portcullis_value)
                }
                ::core::result::Result::Err(__portcullis_error) => {
                    ::core::result::Result::Err(
                        (&&&::r#gate_sdk::__private::returned::Ask::about(
                            &__portcullis_error,
                        ))
                            .error()
                            .error(__portcullis_error),
                    )
                }
            }
        })
    }
}
impl ::r#gate_sdk::__private::Tool for Now {
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
