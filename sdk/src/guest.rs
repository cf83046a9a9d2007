//! The entry point of a module: answers the host's two requests, `describe` and `call`.
//!
//! Authors use [`crate::export_tools!`] instead of this module. It is generic over its streams, so that tests
//! cover whole conversations without a sandbox.

mod entry;
mod frames;
mod serve;
#[cfg(test)]
mod tests;

pub use entry::main;
pub use serve::{EXIT_MISUSE, EXIT_OK, serve};
