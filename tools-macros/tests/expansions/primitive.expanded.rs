// What the macros write; see `src/expansions.rs`.

/// Reads the contents of a file at the given path.
/**
# Errors
What the tool reports to its caller.*/
pub async fn file_read(
    ctx: &ToolContext,
    path: &str,
    offset: u64,
    limit: Option<u64>,
) -> Result<String, ToolError> {
    read(ctx, path, offset, limit)
}
///The tool made from the function `file_read`.
#[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
pub struct FileRead;
///The tool made from the function `file_read`.
#[must_use]
pub fn file_read_tool() -> FileRead {
    FileRead
}
impl ::r#gate_sdk::__private::DeclaredTool for FileRead {
    fn spec(&self) -> &'static ::r#gate_sdk::__private::ToolSpec {
        static __PORTCULLIS_SPEC: ::r#gate_sdk::__private::ToolSpec = ::r#gate_sdk::__private::ToolSpec {
            name: "file_read",
            label: ::core::option::Option::None,
            description: ::core::option::Option::Some(
                "Reads the contents of a file at the given path.",
            ),
            tier: ::core::option::Option::Some(
                ::r#gate_sdk::__private::SafetyTier::ReadOnly,
            ),
            timeout_ms: ::core::option::Option::Some(10000u64),
            policy: ::r#gate_sdk::__private::ToolPolicy::Auto,
            profile: ::core::option::Option::None,
            hosts: &[],
            unknown_keys: ::r#gate_sdk::__private::UnknownKeys::Refuse,
            params: &[
                ::r#gate_sdk::__private::ParamSpec {
                    name: "path",
                    description: ::core::option::Option::Some("Where it is."),
                    kind: ::r#gate_sdk::__private::ParamKind::String,
                    requiredness: ::r#gate_sdk::__private::Requiredness::Required,
                    minimum: ::core::option::Option::None,
                    maximum: ::core::option::Option::None,
                    one_of: &[],
                    role: ::core::option::Option::Some(
                        ::r#gate_sdk::__private::RoleKind::Path(
                            ::r#gate_sdk::__private::Access::Read,
                        ),
                    ),
                },
                ::r#gate_sdk::__private::ParamSpec {
                    name: "offset",
                    description: ::core::option::Option::None,
                    kind: ::r#gate_sdk::__private::ParamKind::Integer,
                    requiredness: ::r#gate_sdk::__private::Requiredness::Default(
                        ::r#gate_sdk::__private::DefaultValue::Literal(
                            ::r#gate_sdk::__private::LiteralValue::Integer(1i128),
                        ),
                    ),
                    minimum: ::core::option::Option::Some(
                        ::r#gate_sdk::__private::LiteralValue::Integer(1i128),
                    ),
                    maximum: ::core::option::Option::None,
                    one_of: &[],
                    role: ::core::option::Option::None,
                },
                ::r#gate_sdk::__private::ParamSpec {
                    name: "limit",
                    description: ::core::option::Option::None,
                    kind: ::r#gate_sdk::__private::ParamKind::Integer,
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
                    Result<String, ToolError>,
                >::NEW)
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
            let (__portcullis_0, __portcullis_1, __portcullis_2) = {
                #[allow(unused_imports)]
                use ::r#gate_sdk::__private::{CannotDecode as _, Decodes as _};
                let mut __portcullis_fields = ::r#gate_sdk::__private::Fields::parse(
                    __portcullis_text,
                    ::r#gate_sdk::__private::DeclaredTool::spec(self),
                );
                let __portcullis_0 = __portcullis_fields
                    .required::<::std::string::String>(0usize);
                let __portcullis_1 = __portcullis_fields
                    .defaulted::<::core::primitive::u64>(1usize, 1);
                let __portcullis_2 = __portcullis_fields
                    .optional::<::core::primitive::u64>(2usize);
                let (
                    true,
                    ::core::option::Option::Some(__portcullis_0),
                    ::core::option::Option::Some(__portcullis_1),
                    ::core::option::Option::Some(__portcullis_2),
                ) = (
                    __portcullis_fields.complete(),
                    __portcullis_0,
                    __portcullis_1,
                    __portcullis_2,
                ) else {
                    return ::core::result::Result::Err(__portcullis_fields.into_error());
                };
                (__portcullis_0, __portcullis_1, __portcullis_2)
            };
            #[allow(unused_imports)]
            use ::r#gate_sdk::__private::return_kind::{
                NotAnError as _, UnsupportedOutput as _, DataOutput as _,
                KnownError as _, KnownOutput as _, NestedResult as _, PlainValue as _,
                ResultValue as _, StandardError as _,
            };
            #[allow(clippy::let_unit_value)]
            let __portcullis_returned = file_read(
                    __portcullis_ctx,
                    __portcullis_0.as_str(),
                    __portcullis_1,
                    __portcullis_2,
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
    pub FileRead, file_read_tool, __tool_function_decl_file_read,
    __tool_declaration_file_read, __tool_meta_file_read
}
