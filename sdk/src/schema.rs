//! Converts parameters to JSON Schema in normal form. Runs only for `describe`, never for a call.

mod definitions;
mod kind;
mod normal;
mod typed;

pub use definitions::Definitions;
pub use kind::ParamKind;
pub use typed::typed;

pub(crate) use typed::output_schema_of;

pub(crate) use normal::sorted;
