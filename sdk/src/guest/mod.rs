//! The entry point of a module: answers `describe` and `call`, the two things a host asks.
//!
//! Authors write [`crate::export_tools!`] and never see this. It is generic over its streams, so the whole
//! conversation can be tested without a sandbox.

mod entry;
mod frames;
mod serve;
#[cfg(test)]
mod tests;

pub use entry::main;
pub use serve::{EXIT_MISUSE, EXIT_OK, serve};
