//! The author's types that a tool's parameters can have.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// A type that a parameter can have, beyond the primitives, lists and maps that `#[tool]` knows.
///
/// [`macro@crate::args`] implements this trait. So does every type that serde decodes and schemars describes.
#[diagnostic::on_unimplemented(
    message = "a tool cannot take `{Self}`: it has no schema",
    label = "not a parameter type",
    note = "put `#[portcullis_sdk::args]` on the definition of `{Self}`",
    note = "for a type of another crate: it needs `Deserialize` and `JsonSchema` (`portcullis_sdk::serde`, `portcullis_sdk::schemars`), or a type of yours around it"
)]
pub trait ToolParam: DeserializeOwned + JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema> ToolParam for T {}
