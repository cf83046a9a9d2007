//! The vocabulary of Portcullis: tools, calls, results and errors.
//!
//! Every other crate uses these types. This crate does no I/O, makes no decisions and holds no state. (The feature
//! `random` asks the kernel for random bytes.) It builds for `wasm32-wasip1`, so that a guest and its host share one
//! definition of their frames.
//!
//! ```
//! use portcullis_types::{FunctionDecl, JsonSchema, JsonSchemaType};
//!
//! let parameters = JsonSchema::from(JsonSchemaType::Object {
//!     properties: [("path".to_owned(), JsonSchemaType::string().into())].into(),
//!     required: vec!["path".to_owned()],
//! });
//! let decl = FunctionDecl { name: "file_read".to_owned(), description: None, parameters };
//! assert_eq!(decl.parameters.as_value()["required"][0], "path");
//! ```
#![forbid(unsafe_code)]

mod args;
mod call;
mod change;
mod context;
mod declaration;
mod dialect;
#[cfg(feature = "display")]
pub mod display;
mod envelope;
mod error;
mod error_code;
mod event;
mod example;
mod executor;
mod frame;
mod http;
mod lock;
mod message;
mod meta;
mod micros;
mod name;
mod outcome;
mod output;
mod path;
mod posture;
#[cfg(feature = "random")]
mod random;
mod role;
mod schema;
mod state;
mod tool;
mod word_enum;

pub use args::ToolArgs;
pub use call::{ToolCall, ToolResult};
pub use change::ChangeScope;
pub use context::{Extensions, ProgressFn, ToolContext, ToolUpdateFn};
pub use declaration::{Declarations, ToolDeclaration};
pub use dialect::{DialectError, SchemaDialect};
#[cfg(feature = "display")]
pub use display::{EscapedText, escape_for_display, is_deceptive, is_invisible, is_right_to_left};
pub use envelope::{EnvelopeError, RunnerBootstrapEnvelope, SandboxTier, SidecarSocket};
pub use error::{ToolError, ToolErrorKind, error_chain};
pub use error_code::ToolErrorCode;
pub use event::{EventFn, ToolEvent};
pub use executor::{CallContext, OfferedTool, ToolExecutor};
pub use frame::{
    CallFrame, FRAME_VERSION, FinalFrame, GuestError, GuestErrorKind, GuestFrame, InputFrame,
    MAX_CHUNK_BYTES, MAX_FINAL_FRAME_BYTES, MAX_STREAM_FRAME_BYTES, MAX_TRANSFER_BYTES, OutputFrame,
};
pub use http::{
    HTTP_IMPORT, HttpFailure, HttpRequestHead, HttpResponseHead, HttpResult, MAX_HTTP_BODY_BYTES,
    MAX_HTTP_HEAD_BYTES, MAX_HTTP_READ_BYTES,
};
pub use lock::{LOCK_IMPORT, MAX_HELD_LOCKS};
pub use message::{Message, MessageRole};
pub use meta::ToolMeta;
pub use name::{InvalidToolName, ToolName};
pub use outcome::ToolOutcome;
pub use output::{Content, ToolOutput, json_bytes};
pub use path::{GuestPath, InvalidGuestPath, MAX_GUEST_PATH_BYTES};
pub use posture::ShellPosture;
#[cfg(feature = "random")]
pub use random::random_hex;
pub use role::{Access, ArgumentRole, RoleKind};
pub use schema::{FunctionDecl, JsonSchema, JsonSchemaType, UntypedSchema};
pub use state::{State, StateType};
pub use tool::{DEFAULT_TIMEOUT, SafetyTier, Tool, ToolPolicy};

/// Re-exported, so that implementors of [`Tool`] use the same version of the macro as this crate.
pub use async_trait::async_trait;
/// Re-exported, so that users of [`ToolContext::cancel`] need no other dependency.
pub use tokio_util::sync::CancellationToken;

pub use word_enum::UnknownWord;
