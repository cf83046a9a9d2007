//! Handles a tool function's return value by its type.
//!
//! The macro sees how a return type is written, not which type it is: `Outcome` may be an alias of `Result`. The
//! generated code therefore uses method resolution (autoref specialization), which prefers the implementation for
//! more references. Each question below has one trait for each answer. If the last trait of a question is for
//! unsupported types, code that selects it does not compile, and the compiler's error names the reason.

use std::{convert::Infallible, error::Error, marker::PhantomData};

use portcullis_types::{JsonSchema, ToolError, ToolOutput};
use serde::Serialize;
use serde_json::Value;

use crate::{
    output::{DescribedData, IntoToolOutput, Json, ToolFailure},
    schema::output_schema_of,
};

/// A question about a value's type.
#[derive(Debug)]
pub struct TypeProbe<T>(PhantomData<fn() -> T>);

impl<T> TypeProbe<T> {
    /// Asks about this value.
    #[must_use]
    pub const fn about(_: &T) -> Self {
        Self(PhantomData)
    }
}

/// Is the value a `Result`? The generated code asks with `(&&TypeProbe::about(&value)).split()`.
pub trait ResultValue {
    /// Selected if the value is a `Result`.
    fn split(&self) -> Fallible {
        Fallible
    }
}

impl<T, E> ResultValue for &TypeProbe<Result<T, E>> {}

/// See [`ResultValue`].
pub trait PlainValue {
    /// Selected if the value has any other type.
    fn split(&self) -> Plain {
        Plain
    }
}

impl<T> PlainValue for TypeProbe<T> {}

/// The value is a `Result`.
#[derive(Debug)]
pub struct Fallible;

/// The value is not a `Result`.
#[derive(Debug)]
pub struct Plain;

impl Fallible {
    /// Returns the result unchanged.
    ///
    /// # Errors
    /// The function's error.
    pub fn split<T, E>(self, result: Result<T, E>) -> Result<T, E> {
        result
    }
}

impl Plain {
    /// Wraps the value in `Ok`.
    ///
    /// # Errors
    /// Never fails: [`Never`] has no value.
    pub fn split<T>(self, value: T) -> Result<T, Never> {
        Ok(value)
    }
}

/// The error type of a function that cannot fail.
#[derive(Debug)]
pub struct Never(Infallible);

impl From<Never> for ToolError {
    fn from(never: Never) -> Self {
        match never.0 {}
    }
}

/// Determines the kind of an error. The generated code calls it as `(&&&TypeProbe::about(&error)).error()`.
pub trait KnownError {
    /// Selected if the error has a message for the model.
    fn error(&self) -> ModelError {
        ModelError
    }
}

impl<E: Into<ToolError>> KnownError for &&TypeProbe<E> {}

/// See [`KnownError`].
pub trait StandardError {
    /// Selected for any other error, which is for the operator.
    fn error(&self) -> OperatorError {
        OperatorError
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> StandardError for &TypeProbe<E> {}

/// See [`KnownError`].
pub trait NotAnError {
    /// Selected for a value that is not an error.
    fn error(&self) -> ModelError {
        ModelError
    }
}

impl<E> NotAnError for TypeProbe<E> {}

/// The error has a message for the model.
#[derive(Debug)]
pub struct ModelError;

/// The error is for the operator.
#[derive(Debug)]
pub struct OperatorError;

impl ModelError {
    /// Converts the error.
    pub fn error<E: ToolFailure>(self, error: E) -> ToolError {
        error.into_tool_error()
    }
}

impl OperatorError {
    /// Converts the error to one whose text the model does not see.
    pub fn error<E: Into<Box<dyn Error + Send + Sync>>>(self, error: E) -> ToolError {
        ToolError::from(error.into())
    }
}

/// Determines the kind of a value. The generated code calls it as `(&&&&TypeProbe::about(&value)).output()`.
pub trait KnownOutput {
    /// Selected if the value has its own conversion.
    fn output(&self) -> ConvertedOutput {
        ConvertedOutput
    }
}

impl<T: IntoToolOutput> KnownOutput for &&&TypeProbe<T> {}

/// See [`KnownOutput`]. Without this trait, a `Result` within a `Result` would count as data with the keys `Ok` and
/// `Err`.
pub trait NestedResult {
    /// Selected for a result with unsupported parts.
    fn output(&self) -> ConvertedOutput {
        ConvertedOutput
    }
}

impl<T, E> NestedResult for &&TypeProbe<Result<T, E>> {}

/// See [`KnownOutput`].
pub trait DataOutput {
    /// Selected for data.
    fn output(&self) -> Data {
        Data
    }
}

impl<T: Serialize> DataOutput for &TypeProbe<T> {}

/// See [`KnownOutput`].
pub trait UnsupportedOutput {
    /// Selected for an unsupported value.
    fn output(&self) -> ConvertedOutput {
        ConvertedOutput
    }
}

impl<T> UnsupportedOutput for TypeProbe<T> {}

/// The value has its own conversion.
#[derive(Debug)]
pub struct ConvertedOutput;

/// The value is data.
#[derive(Debug)]
pub struct Data;

impl ConvertedOutput {
    /// Converts the value.
    ///
    /// # Errors
    /// The error that [`IntoToolOutput::into_tool_output`] returns for this value.
    pub fn output<T: IntoToolOutput>(self, value: T) -> Result<ToolOutput, ToolError> {
        value.into_tool_output()
    }
}

impl Data {
    /// Converts the value to an output with data.
    ///
    /// # Errors
    /// The failure to write the value as JSON.
    pub fn output<T: Serialize>(self, value: T) -> Result<ToolOutput, ToolError> {
        Json(value).into_tool_output()
    }
}

/// Does a return type have a schema? The generated code asks with `(&&&&&&&OutputOf::<T>::NEW).schema()`. The
/// traits below are in order of precedence.
#[derive(Debug)]
pub struct OutputOf<T>(PhantomData<fn() -> T>);

impl<T> OutputOf<T> {
    /// The value on which method resolution selects an implementation.
    pub const NEW: Self = Self(PhantomData);
}

/// See [`OutputOf`]: `Json` of described data, by itself or in a `Result`.
pub trait Declared {
    /// The data's schema.
    fn schema(&self) -> Option<JsonSchema>;
}

impl<T: Serialize + schemars::JsonSchema> Declared for &&&&&&OutputOf<Json<T>> {
    fn schema(&self) -> Option<JsonSchema> {
        output_schema_of::<T>()
    }
}

impl<T: Serialize + schemars::JsonSchema, E> Declared for &&&&&&OutputOf<Result<Json<T>, E>> {
    fn schema(&self) -> Option<JsonSchema> {
        output_schema_of::<T>()
    }
}

/// See [`OutputOf`]: `Json` of data without a schema. It never compiles.
pub trait UndescribedJson<T> {
    /// Requires the missing trait, so that the compiler's error names it.
    fn schema(&self) -> Option<JsonSchema>
    where
        T: DescribedData;
}

impl<T> UndescribedJson<T> for &&&&&OutputOf<Json<T>> {
    fn schema(&self) -> Option<JsonSchema>
    where
        T: DescribedData,
    {
        None
    }
}

impl<T, E> UndescribedJson<T> for &&&&&OutputOf<Result<Json<T>, E>> {
    fn schema(&self) -> Option<JsonSchema>
    where
        T: DescribedData,
    {
        None
    }
}

/// See [`OutputOf`]: a type with its own conversion, such as a text, even if it also has a schema.
pub trait ShownOutput {
    /// No schema.
    fn schema(&self) -> Option<JsonSchema> {
        None
    }
}

impl<T: IntoToolOutput> ShownOutput for &&&&OutputOf<T> {}

/// See [`OutputOf`]: a type with its own conversion in a `Result` with any error.
pub trait ShownResult {
    /// No schema.
    fn schema(&self) -> Option<JsonSchema> {
        None
    }
}

impl<T: IntoToolOutput, E> ShownResult for &&&OutputOf<Result<T, E>> {}

/// See [`OutputOf`]: described data in a `Result`. It precedes [`DescribedOutput`], which would treat a
/// `Result` of described data and a described error as data itself.
pub trait DescribedResult {
    /// Returns the schema, if it describes an object.
    fn schema(&self) -> Option<JsonSchema>;
}

impl<T: Serialize + schemars::JsonSchema, E> DescribedResult for &&OutputOf<Result<T, E>> {
    fn schema(&self) -> Option<JsonSchema> {
        object_schema_of::<T>()
    }
}

/// See [`OutputOf`]: described data.
pub trait DescribedOutput {
    /// Returns the schema, if it describes an object.
    fn schema(&self) -> Option<JsonSchema>;
}

impl<T: Serialize + schemars::JsonSchema> DescribedOutput for &OutputOf<T> {
    fn schema(&self) -> Option<JsonSchema> {
        object_schema_of::<T>()
    }
}

/// Returns the schema of a type, if it describes an object. Clients accept only objects as structured data,
/// so a number or a list is returned as data without a schema.
fn object_schema_of<T: schemars::JsonSchema>() -> Option<JsonSchema> {
    output_schema_of::<T>().filter(JsonSchema::describes_object)
}

/// See [`OutputOf`]: every other type.
pub trait NoSchema {
    /// No schema.
    fn schema(&self) -> Option<JsonSchema>;
}

impl<T> NoSchema for OutputOf<T> {
    fn schema(&self) -> Option<JsonSchema> {
        None
    }
}

/// Can the schema show a default? The generated code asks with `(&&TypeProbe::about(&value)).show()`.
pub trait SerializableDefault<T> {
    /// Selected if it can.
    fn show(&self) -> fn(T) -> Option<Value>;
}

impl<T: Serialize> SerializableDefault<T> for &TypeProbe<T> {
    fn show(&self) -> fn(T) -> Option<Value> {
        |value| serde_json::to_value(value).ok()
    }
}

/// See [`SerializableDefault`].
pub trait OpaqueDefault<T> {
    /// Selected if it cannot. The model learns the default from the description.
    fn show(&self) -> fn(T) -> Option<Value>;
}

impl<T> OpaqueDefault<T> for TypeProbe<T> {
    fn show(&self) -> fn(T) -> Option<Value> {
        |_| None
    }
}
