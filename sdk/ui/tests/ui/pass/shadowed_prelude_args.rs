//! An author's names that shadow those of the prelude, beside types with `#[args]`. `Some` is not among them, because
//! schemars' derive takes it from the prelude.

#![allow(dead_code, non_camel_case_types)]

struct Option;
struct Result;
struct String;
struct Vec;
struct Box;
struct None;
struct Ok;
struct Err;
struct Default;
struct Serialize;
struct Deserialize;
struct JsonSchema;
mod core {}
mod serde {}
mod schemars {}

#[portcullis_sdk::args(deny_unknown)]
struct Filter {
    glob: ::std::string::String,
    #[serde(default)]
    bound: u8,
    list: ::std::vec::Vec<u8>,
}

/// Takes a type of that name.
#[portcullis_sdk::tool]
async fn shadowed(
    filter: Filter,
    list: ::std::vec::Vec<::core::option::Option<Filter>>,
    #[arg(default)] more: ::std::vec::Vec<u8>,
) -> u8 {
    filter.bound + list.len() as u8 + more.len() as u8
}

fn main() {
    let arguments = r#"{"filter":{"glob":"*","list":[]},"list":[null]}"#;
    let output = portcullis_sdk::testing::call(&shadowed_tool(), arguments);
    assert_eq!(output.unwrap().joined_text(), "1");
}
