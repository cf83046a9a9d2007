//! The client of the sidecar's protocol, made from the daemon's `proto/portcullis/shell/v1/shell.proto`. What it
//! means is said there.
#![expect(
    unnameable_types,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "made by tonic-prost-build"
)]

tonic::include_proto!("portcullis.shell.v1");

/// The metadata that says which version a client is of.
pub(super) const VERSION_KEY: &str = "portcullis-version";

/// The metadata of an error that holds its code.
pub(super) const CODE_KEY: &str = "portcullis-code";

/// The version of this protocol's two ends, which must be the same.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
