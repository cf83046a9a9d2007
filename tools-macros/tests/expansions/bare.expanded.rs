// What the macros write; see `src/expansions.rs`.

async fn now() {}
const _: () = {
    #[deprecated(
        note = "tool `now` has no documentation, and a model chooses by it: write `///` and what the tool does above the function"
    )]
    const UNDOCUMENTED_TOOL: () = ();
    UNDOCUMENTED_TOOL
};
///The tool made from the function `now`.
#[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
struct Now;
///The tool made from the function `now`.
#[must_use]
fn now_tool() -> Now {
    Now
}
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
            hosts: &[],
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
            use ::r#gate_sdk::__private::return_kind::{
                NotAnError as _, UnsupportedOutput as _, DataOutput as _,
                KnownError as _, KnownOutput as _, NestedResult as _, PlainValue as _,
                ResultValue as _, StandardError as _,
            };
            #[allow(clippy::let_unit_value)]
            let __portcullis_returned = now().await;
            match (&&::r#gate_sdk::__private::return_kind::TypeProbe::about(
                &__portcullis_returned,
            ))
                .split()
                .split(__portcullis_returned)
            {
                ::core::result::Result::Ok(__portcullis_value) => {
                    (&&&&::r#gate_sdk::__private::return_kind::TypeProbe::about(
                        &__portcullis_value,
                    ))
                        .output()
                        .output(__portcullis_value)
                }
                ::core::result::Result::Err(__portcullis_error) => {
                    ::core::result::Result::Err(
                        (&&&::r#gate_sdk::__private::return_kind::TypeProbe::about(
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
::r#gate_sdk::__private::forward_to_declared! {
    Now, now_tool, __tool_function_decl_now, __tool_declaration_now, __tool_meta_now
}
