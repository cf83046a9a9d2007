//! The client of the sidecar's protocol, generated from the daemon's `proto/portcullis/shell/v1/shell.proto`,
//! which documents it.
#![expect(
    unnameable_types,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "made by tonic-prost-build"
)]

tonic::include_proto!("portcullis.shell.v1");

/// The metadata key of the client's version.
pub(super) const VERSION_KEY: &str = "portcullis-version";

/// The metadata key of an error's code.
pub(super) const CODE_KEY: &str = "portcullis-code";

/// The version of the protocol, which must be the same at both ends.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
