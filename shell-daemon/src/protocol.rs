//! The protocol of the sidecar, made from `proto/portcullis/shell/v1/shell.proto`. What it means is said there.
//!
//! Types, the server's trait and the client; nothing that connects.
#![expect(
    missing_docs,
    clippy::allow_attributes_without_reason,
    clippy::must_use_candidate,
    clippy::allow_attributes,
    clippy::missing_errors_doc,
    reason = "made by tonic-prost-build; the calls and messages are described in the protocol's file"
)]

tonic::include_proto!("portcullis.shell.v1");

/// The metadata that says which version a client is of.
pub const VERSION_KEY: &str = "portcullis-version";

/// The metadata of an error that holds its code.
pub const CODE_KEY: &str = "portcullis-code";

/// The version of this protocol's two ends, which must be the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
