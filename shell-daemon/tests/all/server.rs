//! Tests the sidecar through its real program and a real client.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

mod bounds;
mod bytes;
mod commands;
mod embedded;
mod ends;
mod files;
mod flood;
mod network;
mod owners;
mod service_manager;
pub(crate) mod sidecar;
mod text_logs;
