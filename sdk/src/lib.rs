//! The dependency of a tool author: `#[tool]`, `#[args]` for types of arguments, the vocabulary, and the
//! entry point of a module.
//!
//! A tool is an async function. Its parameters become the schema that a model sees, its documentation becomes the
//! descriptions, and its arguments arrive decoded and checked:
//!
//! ```
//! use portcullis_sdk::{Tool, tool};
//!
//! /// Greets somebody.
//! #[tool(tier = ReadOnly, timeout = "5s")]
//! async fn greet(
//!     /// Whom to greet.
//!     name: String,
//!     /// How often.
//!     #[arg(default = 1, min = 1, max = 10)]
//!     times: u32,
//! ) -> String {
//!     vec![format!("hello {name}"); times as usize].join(", ")
//! }
//!
//! assert_eq!(greet_tool().schema().name, "greet");
//! ```
//!
//! The same function serves a native registry (`greet_tool()`) and a sandboxed module ([`export_tools!`]).
//!
//! - [`macro@tool`] documents the attribute in full.
//! - [`fs`] documents how a tool opens the files that it was granted.
//! - [`http`] documents how a tool makes requests.
//! - [`testing`] documents how to test a tool without a sandbox.
//!
//! This crate grants nothing. A tool declares requests; the operator's policy decides.
#![deny(unsafe_code)]

// The macros refer to this crate by its external name, and so do its own tests and examples.
extern crate self as portcullis_sdk;

mod arguments;
mod declared;
mod decode;
pub mod fs;
pub mod guest;
pub mod http;
mod output;
mod param;
#[doc(hidden)]
pub mod return_kind;
mod schema;
mod spec;
#[doc(hidden)]
pub mod strict;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
pub mod transfer;

#[doc = include_str!("../docs/tool.md")]
pub use portcullis_tools_macros::tool;

#[doc = include_str!("../docs/args.md")]
pub use portcullis_tools_macros::args;

#[doc = include_str!("../docs/export_tools.md")]
pub use portcullis_tools_macros::export_tools;

pub use declared::{DeclaredTool, ToolFuture};
pub use output::{DescribedData, IntoToolOutput, Json, ToolFailure};
pub use param::ToolParam;
pub use portcullis_types::{
    Access, ArgumentRole, CancellationToken, Content, FunctionDecl, GuestPath, HttpRequestHead, JsonSchema,
    JsonSchemaType, MAX_CHUNK_BYTES, MAX_TRANSFER_BYTES, RoleKind, SafetyTier, SchemaDialect, State,
    StateType, Tool, ToolArgs, ToolContext, ToolDeclaration, ToolError, ToolErrorKind, ToolMeta, ToolOutput,
    ToolPolicy, async_trait,
};
pub use schema::{Definitions, ParamKind};
pub use spec::{DefaultValue, Hints, LiteralValue, ParamSpec, Requiredness, ToolSpec, UnknownKeys};

pub use schemars;
pub use serde;
pub use serde_json;

/// For the macros' expansions. This is not public API: it changes with the macros.
#[doc(hidden)]
pub mod __private {
    pub use crate::{
        __forward_to_declared as forward_to_declared,
        arguments::Fields,
        declared::{DeclaredTool, ModuleTool, ToolFuture, execute, module_tool, run_local},
        decode::{CannotDecode, DecodeFn, Decoder, Decodes, Faults, Mismatch, Primitive},
        guest::main,
        output::IntoToolOutput,
        return_kind,
        schema::{ParamKind, typed},
        spec::{DefaultValue, Hints, LiteralValue, ParamSpec, Requiredness, ToolSpec, UnknownKeys},
        strict::{Choice, ObjectOnly, field},
    };
    pub use portcullis_types::{
        Access, RoleKind, SafetyTier, State, StateType, ToolContext, ToolOutput, ToolPolicy,
    };
    pub use schemars;
    pub use serde;
    pub use serde_json;
}
