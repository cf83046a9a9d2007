//! The arguments of a call: from the text that a model wrote to a value that fits the tool's schema.
//!
//! What an argument *means* (a path, an address, a command) is the policy's business, not this module's,
//! and nothing here rewrites the content of a string.

mod bounds;
mod decode;
mod explain;
mod ranges;
mod references;
mod repair;
mod rewrite;
mod schema;
mod tree;
mod view;

pub use bounds::MAX_SCHEMA_BYTES;
pub use decode::{MAX_ARGUMENT_BYTES, MAX_ARGUMENT_DEPTH};
pub use schema::{ArgumentSchema, CheckedArguments, Repairs, SchemaError};

#[cfg(test)]
mod tests;
