// What the macros write; see `src/expansions.rs`.

async fn search(
    filters: Vec<Filter>,
    order: Order,
    numbers: Vec<u8>,
    tags: Option<HashMap<String, (bool, Value)>>,
) -> Json<Hits> {
    hits(filters, order, numbers, tags)
}
const _: () = {
    #[deprecated(
        note = "tool `search` has no documentation, and a model chooses by it: write `///` and what the tool does above the function"
    )]
    const UNDOCUMENTED_TOOL: () = ();
    UNDOCUMENTED_TOOL
};
///The tool made from the function `search`.
#[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
struct Search;
///The tool made from the function `search`.
#[must_use]
fn search_tool() -> Search {
    Search
}
impl ::r#gate_sdk::__private::DeclaredTool for Search {
    fn spec(&self) -> &'static ::r#gate_sdk::__private::ToolSpec {
        static __PORTCULLIS_SPEC: ::r#gate_sdk::__private::ToolSpec = ::r#gate_sdk::__private::ToolSpec {
            name: "search",
            label: ::core::option::Option::None,
            description: ::core::option::Option::None,
            tier: ::core::option::Option::None,
            timeout_ms: ::core::option::Option::None,
            policy: ::r#gate_sdk::__private::ToolPolicy::Auto,
            profile: ::core::option::Option::None,
            hosts: &[],
            unknown_keys: ::r#gate_sdk::__private::UnknownKeys::Ignore,
            params: &[
                ::r#gate_sdk::__private::ParamSpec {
                    name: "filters",
                    description: ::core::option::Option::None,
                    kind: ::r#gate_sdk::__private::ParamKind::List {
                        items: &::r#gate_sdk::__private::ParamKind::Typed(
                            ::r#gate_sdk::__private::typed::<Filter>,
                        ),
                        length: ::core::option::Option::None,
                    },
                    requiredness: ::r#gate_sdk::__private::Requiredness::Required,
                    minimum: ::core::option::Option::None,
                    maximum: ::core::option::Option::None,
                    one_of: &[],
                    role: ::core::option::Option::None,
                },
                ::r#gate_sdk::__private::ParamSpec {
                    name: "order",
                    description: ::core::option::Option::None,
                    kind: ::r#gate_sdk::__private::ParamKind::Typed(
                        ::r#gate_sdk::__private::typed::<Order>,
                    ),
                    requiredness: ::r#gate_sdk::__private::Requiredness::Default(
                        ::r#gate_sdk::__private::DefaultValue::Computed(|| {
                            #[allow(unused_imports)]
                            use ::r#gate_sdk::__private::return_kind::{
                                SerializableDefault as _, OpaqueDefault as _,
                            };
                            let __portcullis_default = Search::__portcullis_default_1();
                            (&&::r#gate_sdk::__private::return_kind::TypeProbe::about(
                                &__portcullis_default,
                            ))
                                .show()(__portcullis_default)
                        }),
                    ),
                    minimum: ::core::option::Option::None,
                    maximum: ::core::option::Option::None,
                    one_of: &[],
                    role: ::core::option::Option::None,
                },
                ::r#gate_sdk::__private::ParamSpec {
                    name: "numbers",
                    description: ::core::option::Option::None,
                    kind: ::r#gate_sdk::__private::ParamKind::List {
                        items: &::r#gate_sdk::__private::ParamKind::Integer,
                        length: ::core::option::Option::None,
                    },
                    requiredness: ::r#gate_sdk::__private::Requiredness::Default(
                        ::r#gate_sdk::__private::DefaultValue::Computed(|| {
                            #[allow(unused_imports)]
                            use ::r#gate_sdk::__private::return_kind::{
                                SerializableDefault as _, OpaqueDefault as _,
                            };
                            let __portcullis_default = Search::__portcullis_default_2();
                            (&&::r#gate_sdk::__private::return_kind::TypeProbe::about(
                                &__portcullis_default,
                            ))
                                .show()(__portcullis_default)
                        }),
                    ),
                    minimum: ::core::option::Option::None,
                    maximum: ::core::option::Option::None,
                    one_of: &[],
                    role: ::core::option::Option::None,
                },
                ::r#gate_sdk::__private::ParamSpec {
                    name: "tags",
                    description: ::core::option::Option::None,
                    kind: ::r#gate_sdk::__private::ParamKind::Map(
                        &::r#gate_sdk::__private::ParamKind::Tuple(
                            &[
                                ::r#gate_sdk::__private::ParamKind::Boolean,
                                ::r#gate_sdk::__private::ParamKind::Typed(
                                    ::r#gate_sdk::__private::typed::<Value>,
                                ),
                            ],
                        ),
                    ),
                    requiredness: ::r#gate_sdk::__private::Requiredness::Optional,
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
                (&&&&&&&::r#gate_sdk::__private::return_kind::OutputOf::<
                    Json<Hits>,
                >::NEW)
                    .schema()
            },
            hints: ::r#gate_sdk::__private::Hints {
                aliases: &["grep_files"],
                idempotent: true,
                hidden: false,
                output_cap_bytes: ::core::option::Option::Some(4096u64),
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
            let (__portcullis_0, __portcullis_1, __portcullis_2, __portcullis_3) = {
                #[allow(unused_imports)]
                use ::r#gate_sdk::__private::{CannotDecode as _, Decodes as _};
                let mut __portcullis_fields = ::r#gate_sdk::__private::Fields::parse(
                    __portcullis_text,
                    ::r#gate_sdk::__private::DeclaredTool::spec(self),
                );
                let __portcullis_0 = __portcullis_fields
                    .required_by(
                        0usize,
                        (&&::r#gate_sdk::__private::Decoder::<
                            ::std::vec::Vec<Filter>,
                        >::NEW)
                            .function(),
                    );
                let __portcullis_1 = __portcullis_fields
                    .defaulted_by(
                        1usize,
                        (&&::r#gate_sdk::__private::Decoder::<Order>::NEW).function(),
                        Search::__portcullis_default_1,
                    );
                let __portcullis_2 = __portcullis_fields
                    .defaulted_by(
                        2usize,
                        (&&::r#gate_sdk::__private::Decoder::<
                            ::std::vec::Vec<::core::primitive::u8>,
                        >::NEW)
                            .function(),
                        Search::__portcullis_default_2,
                    );
                let __portcullis_3 = __portcullis_fields
                    .optional_by(
                        3usize,
                        (&&::r#gate_sdk::__private::Decoder::<
                            ::std::collections::HashMap<
                                ::std::string::String,
                                (::core::primitive::bool, Value),
                            >,
                        >::NEW)
                            .function(),
                    );
                let (
                    true,
                    ::core::option::Option::Some(__portcullis_0),
                    ::core::option::Option::Some(__portcullis_1),
                    ::core::option::Option::Some(__portcullis_2),
                    ::core::option::Option::Some(__portcullis_3),
                ) = (
                    __portcullis_fields.complete(),
                    __portcullis_0,
                    __portcullis_1,
                    __portcullis_2,
                    __portcullis_3,
                ) else {
                    return ::core::result::Result::Err(__portcullis_fields.into_error());
                };
                (__portcullis_0, __portcullis_1, __portcullis_2, __portcullis_3)
            };
            #[allow(unused_imports)]
            use ::r#gate_sdk::__private::return_kind::{
                NotAnError as _, UnsupportedOutput as _, DataOutput as _,
                KnownError as _, KnownOutput as _, NestedResult as _, PlainValue as _,
                ResultValue as _, StandardError as _,
            };
            #[allow(clippy::let_unit_value)]
            let __portcullis_returned = search(
                    __portcullis_0,
                    __portcullis_1,
                    __portcullis_2,
                    __portcullis_3,
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
}
::r#gate_sdk::__private::forward_to_declared! {
    Search, search_tool, __tool_function_decl_search, __tool_declaration_search,
    __tool_meta_search
}
impl Search {
    fn __portcullis_default_1() -> Order {
        ::core::default::Default::default()
    }
    fn __portcullis_default_2() -> ::std::vec::Vec<::core::primitive::u8> {
        vec![1]
    }
}
