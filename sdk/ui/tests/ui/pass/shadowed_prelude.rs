//! An author's names that shadow those of the prelude.

#![allow(dead_code, non_camel_case_types)]

struct Option;
struct Result;
struct String;
struct Vec;
struct Box;
struct Some;
struct None;
struct Ok;
struct Err;
struct Future;
struct ToolContext;
struct Send;
struct Debug;
struct Clone;
struct Copy;
struct Tool;
struct str;
struct u64;
mod core {}
mod std {}

/// Documented.
#[portcullis_sdk::tool(tier = ReadOnly, label = "l", deny_unknown)]
async fn shadowed(
    ctx: &portcullis_sdk::ToolContext,
    text: ::std::string::String,
    number: ::core::option::Option<::core::primitive::u64>,
    #[arg(default = "d")] other: &::core::primitive::str,
) -> ::core::result::Result<::std::string::String, portcullis_sdk::ToolError> {
    ctx.progress("shadowed");
    ::core::result::Result::Ok(::std::format!("{text} {number:?} {other}"))
}

fn main() {
    let output = portcullis_sdk::testing::call(&shadowed_tool(), r#"{"text":"t","number":1}"#);
    assert_eq!(output.unwrap().joined_text(), "t Some(1) d");
}
