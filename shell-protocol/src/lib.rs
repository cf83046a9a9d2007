//! The protocol of the shell sidecar: its messages, the server's trait and the client. Nothing here connects.
//!
//! `proto/portcullis/shell/v1/shell.proto` documents the calls and messages. `src/generated/` is made from it;
//! `tests/generated.rs` compares them, and writes it anew.
#![forbid(unsafe_code)]

#[expect(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "made by tonic-prost-build; the calls and messages are described in the protocol's file"
)]
mod generated {
    include!("generated/portcullis.shell.v1.rs");
}

pub use generated::*;

/// Metadata key of the client's version.
pub const VERSION_KEY: &str = "portcullis-version";

/// Metadata key of an error's stable code.
pub const CODE_KEY: &str = "portcullis-code";

/// Version of the protocol. Client and server must have the same one.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
