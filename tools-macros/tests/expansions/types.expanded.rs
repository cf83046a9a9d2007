// What the macros write; see `src/expansions.rs`.

#[derive(
    ::r#gate_sdk::__private::serde::Deserialize,
    ::r#gate_sdk::__private::serde::Serialize,
    ::r#gate_sdk::__private::schemars::JsonSchema
)]
#[serde(crate = ":: r#gate_sdk :: __private :: serde")]
#[schemars(crate = ":: r#gate_sdk :: __private :: schemars")]
#[serde(deny_unknown_fields)]
#[serde(remote = "Self")]
#[schemars(rename = "Filter")]
/// Which files.
struct Filter {
    #[serde(deserialize_with = "Filter::__portcullis_read_glob")]
    #[serde(serialize_with = "Filter::__portcullis_write_glob")]
    #[schemars(schema_with = "Filter::__portcullis_describe_glob")]
    glob: String,
    #[serde(default = "ten")]
    #[serde(deserialize_with = "Filter::__portcullis_read_max_hits")]
    #[schemars(schema_with = "Filter::__portcullis_describe_max_hits")]
    max_hits: u8,
}
const _: () = {
    impl<'de> ::r#gate_sdk::__private::serde::Deserialize<'de> for Filter {
        fn deserialize<__D: ::r#gate_sdk::__private::serde::Deserializer<'de>>(
            deserializer: __D,
        ) -> ::core::result::Result<Self, __D::Error> {
            Filter::deserialize(::r#gate_sdk::__private::ObjectOnly(deserializer))
        }
    }
    impl ::r#gate_sdk::__private::serde::Serialize for Filter {
        fn serialize<__S: ::r#gate_sdk::__private::serde::Serializer>(
            &self,
            serializer: __S,
        ) -> ::core::result::Result<__S::Ok, __S::Error> {
            Filter::serialize(self, serializer)
        }
    }
    impl Filter {
        #[allow(non_snake_case)]
        fn __portcullis_read_glob<
            'de,
            __D: ::r#gate_sdk::__private::serde::Deserializer<'de>,
        >(deserializer: __D) -> ::core::result::Result<String, __D::Error> {
            #[allow(unused_imports)]
            use ::r#gate_sdk::__private::field::{Read as _, ReadFallback as _};
            (&&::r#gate_sdk::__private::field::Field::<String>::NEW).read(deserializer)
        }
        #[allow(non_snake_case)]
        fn __portcullis_write_glob<__S: ::r#gate_sdk::__private::serde::Serializer>(
            value: &String,
            serializer: __S,
        ) -> ::core::result::Result<__S::Ok, __S::Error> {
            #[allow(unused_imports)]
            use ::r#gate_sdk::__private::field::{Write as _, WriteFallback as _};
            (&&::r#gate_sdk::__private::field::Field::<String>::NEW)
                .write(value, serializer)
        }
        #[allow(non_snake_case)]
        fn __portcullis_describe_glob(
            generator: &mut ::r#gate_sdk::__private::schemars::SchemaGenerator,
        ) -> ::r#gate_sdk::__private::schemars::Schema {
            #[allow(unused_imports)]
            use ::r#gate_sdk::__private::field::{Describe as _, DescribeFallback as _};
            (&&::r#gate_sdk::__private::field::Field::<String>::NEW).schema(generator)
        }
        #[allow(non_snake_case)]
        fn __portcullis_read_max_hits<
            'de,
            __D: ::r#gate_sdk::__private::serde::Deserializer<'de>,
        >(deserializer: __D) -> ::core::result::Result<u8, __D::Error> {
            #[allow(unused_imports)]
            use ::r#gate_sdk::__private::field::{Read as _, ReadFallback as _};
            let value: ::core::option::Option<u8> = (&&::r#gate_sdk::__private::field::Field::<
                ::core::option::Option<u8>,
            >::NEW)
                .read(deserializer)?;
            ::core::result::Result::Ok(value.unwrap_or_else(ten))
        }
        #[allow(non_snake_case)]
        fn __portcullis_describe_max_hits(
            generator: &mut ::r#gate_sdk::__private::schemars::SchemaGenerator,
        ) -> ::r#gate_sdk::__private::schemars::Schema {
            #[allow(unused_imports)]
            use ::r#gate_sdk::__private::field::{Describe as _, DescribeFallback as _};
            (&&::r#gate_sdk::__private::field::Field::<u8>::NEW).schema(generator)
        }
    }
    const __PORTCULLIS_FIELDS: () = {
        ::r#gate_sdk::__private::field::assert_field::<String>();
        ::r#gate_sdk::__private::field::assert_field::<u8>();
    };
};
#[derive(
    ::r#gate_sdk::__private::serde::Deserialize,
    ::r#gate_sdk::__private::serde::Serialize,
    ::r#gate_sdk::__private::schemars::JsonSchema
)]
#[serde(crate = ":: r#gate_sdk :: __private :: serde")]
#[schemars(crate = ":: r#gate_sdk :: __private :: schemars")]
#[serde(remote = "Self")]
#[schemars(rename = "Order")]
#[serde(rename_all = "snake_case")]
enum Order {
    /// A to Z.
    ByName,
    BySize,
}
const _: () = {
    impl<'de> ::r#gate_sdk::__private::serde::Deserialize<'de> for Order {
        fn deserialize<__D: ::r#gate_sdk::__private::serde::Deserializer<'de>>(
            deserializer: __D,
        ) -> ::core::result::Result<Self, __D::Error> {
            Order::deserialize(::r#gate_sdk::__private::Choice(deserializer))
        }
    }
    impl ::r#gate_sdk::__private::serde::Serialize for Order {
        fn serialize<__S: ::r#gate_sdk::__private::serde::Serializer>(
            &self,
            serializer: __S,
        ) -> ::core::result::Result<__S::Ok, __S::Error> {
            Order::serialize(self, serializer)
        }
    }
};
