//! Adapters that make the types of [`macro@crate::args`] accept only what their schema allows, at any nesting.
//!
//! serde's derived code accepts more than a schema shows: a list for an object, `{"Name": null}` for
//! `"Name"`. These adapters sit between the derived code and the input, and pass on only the notation of the
//! schema.

mod bounds;
mod choice;
pub mod field;
mod object;

pub use choice::Choice;
pub use object::ObjectOnly;
