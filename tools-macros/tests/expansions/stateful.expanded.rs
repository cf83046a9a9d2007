// What the macros write; see `src/expansions.rs`.

/// Counts.
async fn count(counter: &State<Counter>, n: i64, names: &gate_sdk::State<Names>) -> i64 {
    counter.add(n, names)
}
///The tool made from the function `count`.
#[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
struct Count;
///The tool made from the function `count`.
#[must_use]
fn count_tool() -> Count {
    Count
}
impl ::r#gate_sdk::__private::DeclaredTool for Count {
    fn spec(&self) -> &'static ::r#gate_sdk::__private::ToolSpec {
        static __PORTCULLIS_SPEC: ::r#gate_sdk::__private::ToolSpec = ::r#gate_sdk::__private::ToolSpec {
            name: "count",
            label: ::core::option::Option::None,
            description: ::core::option::Option::Some("Counts."),
            tier: ::core::option::Option::Some(
                ::r#gate_sdk::__private::SafetyTier::ReadOnly,
            ),
            timeout_ms: ::core::option::Option::None,
            policy: ::r#gate_sdk::__private::ToolPolicy::Auto,
            profile: ::core::option::Option::None,
            hosts: &[],
            unknown_keys: ::r#gate_sdk::__private::UnknownKeys::Ignore,
            params: &[
                ::r#gate_sdk::__private::ParamSpec {
                    name: "n",
                    description: ::core::option::Option::None,
                    kind: ::r#gate_sdk::__private::ParamKind::Integer,
                    requiredness: ::r#gate_sdk::__private::Requiredness::Required,
                    minimum: ::core::option::Option::None,
                    maximum: ::core::option::Option::None,
                    one_of: &[],
                    role: ::core::option::Option::None,
                },
            ],
            output_schema: || {
                #[allow(unused_imports)]
                use ::r#gate_sdk::__private::return_kind::{
                    NoSchema as _, Declared as _, DescribedOutput as _,
                    DescribedResult as _, ShownOutput as _, ShownResult as _,
                    UndescribedJson as _,
                };
                (&&&&&&&::r#gate_sdk::__private::return_kind::OutputOf::<i64>::NEW)
                    .schema()
            },
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
            let (__portcullis_0,) = {
                #[allow(unused_imports)]
                use ::r#gate_sdk::__private::{CannotDecode as _, Decodes as _};
                let mut __portcullis_fields = ::r#gate_sdk::__private::Fields::parse(
                    __portcullis_text,
                    ::r#gate_sdk::__private::DeclaredTool::spec(self),
                );
                let __portcullis_0 = __portcullis_fields
                    .required::<::core::primitive::i64>(0usize);
                let (true, ::core::option::Option::Some(__portcullis_0)) = (
                    __portcullis_fields.complete(),
                    __portcullis_0,
                ) else {
                    return ::core::result::Result::Err(__portcullis_fields.into_error());
                };
                (__portcullis_0,)
            };
            let __portcullis_state_0 = match ::r#gate_sdk::__private::State::<
                Counter,
            >::of(__portcullis_ctx) {
                ::core::result::Result::Ok(__portcullis_state) => __portcullis_state,
                ::core::result::Result::Err(__portcullis_error) => {
                    return ::core::result::Result::Err(__portcullis_error);
                }
            };
            let __portcullis_state_1 = match ::r#gate_sdk::__private::State::<
                Names,
            >::of(__portcullis_ctx) {
                ::core::result::Result::Ok(__portcullis_state) => __portcullis_state,
                ::core::result::Result::Err(__portcullis_error) => {
                    return ::core::result::Result::Err(__portcullis_error);
                }
            };
            #[allow(unused_imports)]
            use ::r#gate_sdk::__private::return_kind::{
                NotAnError as _, UnsupportedOutput as _, DataOutput as _,
                KnownError as _, KnownOutput as _, NestedResult as _, PlainValue as _,
                ResultValue as _, StandardError as _,
            };
            #[allow(clippy::let_unit_value)]
            let __portcullis_returned = count(
                    __portcullis_state_0,
                    __portcullis_0,
                    __portcullis_state_1,
                )
                .await;
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
    fn states(&self) -> ::std::vec::Vec<::r#gate_sdk::__private::StateType> {
        ::std::vec![
            ::r#gate_sdk::__private::StateType::of:: < Counter > (),
            ::r#gate_sdk::__private::StateType::of:: < Names > ()
        ]
    }
}
::r#gate_sdk::__private::forward_to_declared! {
    Count, count_tool, __tool_function_decl_count, __tool_declaration_count,
    __tool_meta_count, stateful
}
