//! The protocol of the sidecar, generated from `proto/portcullis/shell/v1/shell.proto`, which documents it.
//!
//! Message types, the server's trait and the client; nothing here connects.
#![expect(
    missing_docs,
    clippy::allow_attributes_without_reason,
    clippy::must_use_candidate,
    clippy::allow_attributes,
    clippy::missing_errors_doc,
    reason = "made by tonic-prost-build; the calls and messages are described in the protocol's file"
)]

tonic::include_proto!("portcullis.shell.v1");

/// Metadata key of the client's version.
pub const VERSION_KEY: &str = "portcullis-version";

/// Metadata key of an error's stable code.
pub const CODE_KEY: &str = "portcullis-code";

/// Version of the protocol. Client and server must have the same one.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
