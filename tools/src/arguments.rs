//! The arguments of a call: from the model's text to a value that fits the tool's schema.
//!
//! The *meaning* of an argument (a path, a URL, a command) is left to the policy. This module never changes the content
//! of a string.

mod bounds;
mod decode;
mod faults;
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
