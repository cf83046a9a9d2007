//! What keeps the types of [`macro@crate::args`] to their schema, wherever they are nested.
//!
//! serde's derived code takes more than a schema shows: a list for an object, `{"Name": null}` for `"Name"`.
//! These adapters stand between the derived code and the input and let through only what is shown.

mod bounds;
mod choice;
pub mod field;
mod object;

pub use choice::Choice;
pub use object::ObjectOnly;
