//! The protocol of the shell sidecar: its messages, the server's trait and the client. This crate opens no connection.
//!
//! `proto/portcullis/shell/v1/shell.proto` documents the calls and messages. `src/generated/` is made from that file.
//! `tests/generated.rs` compares the two, and can generate the code again.
#![forbid(unsafe_code)]

mod refusal;

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
pub use refusal::{CODE_KEY, RefusalCode};

/// The metadata key of the client's version.
pub const VERSION_KEY: &str = "portcullis-version";

/// The version of the protocol. Client and server must have the same version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
