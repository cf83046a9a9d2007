//! What a tool function returns, told apart by its type.
//!
//! The macro sees how a return type is written, not what it is: `Outcome` may be an alias of `Result`. So the
//! type is asked, by method resolution: it prefers the implementation for more references, and each question
//! below has one implementation per answer. The last answer of each is for types that are no result; it
//! compiles nowhere and says why.

use std::{convert::Infallible, error::Error, marker::PhantomData};

use portcullis_types::{JsonSchema, ToolError, ToolOutput};
use serde::Serialize;
use serde_json::Value;

use crate::{
    output::{DescribedData, IntoToolOutput, Json, ToolFailure},
    schema::of_output,
};

/// A question about a value.
#[derive(Debug)]
pub struct Ask<T>(PhantomData<fn() -> T>);

impl<T> Ask<T> {
    /// Asks about this value.
    #[must_use]
    pub const fn about(_: &T) -> Self {
        Self(PhantomData)
    }
}

/// Is it a `Result`? Asked as `(&&Ask::about(&value)).split()`.
pub trait ResultValue {
    /// Yes.
    fn split(&self) -> Fallible {
        Fallible
    }
}

impl<T, E> ResultValue for &Ask<Result<T, E>> {}

/// See [`ResultValue`].
pub trait PlainValue {
    /// No.
    fn split(&self) -> Plain {
        Plain
    }
}

impl<T> PlainValue for Ask<T> {}

/// It is a `Result`.
#[derive(Debug)]
pub struct Fallible;

/// It is none.
#[derive(Debug)]
pub struct Plain;

impl Fallible {
    /// The result itself.
    ///
    /// # Errors
    /// The function's.
    pub fn split<T, E>(self, result: Result<T, E>) -> Result<T, E> {
        result
    }
}

impl Plain {
    /// The value as a result.
    ///
    /// # Errors
    /// None.
    pub fn split<T>(self, value: T) -> Result<T, Never> {
        Ok(value)
    }
}

/// The error of what cannot fail.
#[derive(Debug)]
pub struct Never(Infallible);

impl From<Never> for ToolError {
    fn from(never: Never) -> Self {
        match never.0 {}
    }
}

/// What kind of error is it? Asked as `(&&&Ask::about(&error)).error()`.
pub trait KnownError {
    /// One that says what the model reads.
    fn error(&self) -> Told {
        Told
    }
}

impl<E: Into<ToolError>> KnownError for &&Ask<E> {}

/// See [`KnownError`].
pub trait StandardError {
    /// Any other; it is the operator's.
    fn error(&self) -> Hidden {
        Hidden
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> StandardError for &Ask<E> {}

/// See [`KnownError`].
pub trait AnyError {
    /// None.
    fn error(&self) -> Told {
        Told
    }
}

impl<E> AnyError for Ask<E> {}

/// The error says what the model reads.
#[derive(Debug)]
pub struct Told;

/// The error is the operator's.
#[derive(Debug)]
pub struct Hidden;

impl Told {
    /// Converts the error.
    pub fn error<E: ToolFailure>(self, error: E) -> ToolError {
        error.into_tool_error()
    }
}

impl Hidden {
    /// Hides the error.
    pub fn error<E: Into<Box<dyn Error + Send + Sync>>>(self, error: E) -> ToolError {
        ToolError::from(error.into())
    }
}

/// What kind of value is it? Asked as `(&&&&Ask::about(&value)).output()`.
pub trait KnownOutput {
    /// One that says how it is shown.
    fn output(&self) -> Shown {
        Shown
    }
}

impl<T: IntoToolOutput> KnownOutput for &&&Ask<T> {}

/// See [`KnownOutput`]. Without it the `Ok` and `Err` of a result within a result would pass for data.
pub trait NestedResult {
    /// A result whose parts are none of ours.
    fn output(&self) -> Shown {
        Shown
    }
}

impl<T, E> NestedResult for &&Ask<Result<T, E>> {}

/// See [`KnownOutput`].
pub trait DataOutput {
    /// Data.
    fn output(&self) -> Data {
        Data
    }
}

impl<T: Serialize> DataOutput for &Ask<T> {}

/// See [`KnownOutput`].
pub trait AnyOutput {
    /// None of ours.
    fn output(&self) -> Shown {
        Shown
    }
}

impl<T> AnyOutput for Ask<T> {}

/// The value says how it is shown.
#[derive(Debug)]
pub struct Shown;

/// The value is data.
#[derive(Debug)]
pub struct Data;

impl Shown {
    /// Converts the value.
    ///
    /// # Errors
    /// What the conversion reports.
    pub fn output<T: IntoToolOutput>(self, value: T) -> Result<ToolOutput, ToolError> {
        value.into_tool_output()
    }
}

impl Data {
    /// Converts the value.
    ///
    /// # Errors
    /// What kept it from being written as JSON.
    pub fn output<T: Serialize>(self, value: T) -> Result<ToolOutput, ToolError> {
        Json(value).into_tool_output()
    }
}

/// Has a return type a schema? Asked as `(&&&&&&&OutputOf::<T>::NEW).schema()`; the traits below are in the order
/// in which they answer.
#[derive(Debug)]
pub struct OutputOf<T>(PhantomData<fn() -> T>);

impl<T> OutputOf<T> {
    /// The question.
    pub const NEW: Self = Self(PhantomData);
}

/// See [`OutputOf`]: `Json` of described data, bare or in a `Result`.
pub trait Declared {
    /// The schema.
    fn schema(&self) -> Option<JsonSchema>;
}

impl<T: Serialize + schemars::JsonSchema> Declared for &&&&&&OutputOf<Json<T>> {
    fn schema(&self) -> Option<JsonSchema> {
        of_output::<T>()
    }
}

impl<T: Serialize + schemars::JsonSchema, E> Declared for &&&&&&OutputOf<Result<Json<T>, E>> {
    fn schema(&self) -> Option<JsonSchema> {
        of_output::<T>()
    }
}

/// See [`OutputOf`]: `Json` of other data. Does not compile where it is used.
pub trait Undescribed<T> {
    /// Asks for what the data lacks.
    fn schema(&self) -> Option<JsonSchema>
    where
        T: DescribedData;
}

impl<T> Undescribed<T> for &&&&&OutputOf<Json<T>> {
    fn schema(&self) -> Option<JsonSchema>
    where
        T: DescribedData,
    {
        None
    }
}

impl<T, E> Undescribed<T> for &&&&&OutputOf<Result<Json<T>, E>> {
    fn schema(&self) -> Option<JsonSchema>
    where
        T: DescribedData,
    {
        None
    }
}

/// See [`OutputOf`]: what says itself how it is shown, such as a text, though it has a schema as well.
pub trait ShownOutput {
    /// No schema.
    fn schema(&self) -> Option<JsonSchema> {
        None
    }
}

impl<T: IntoToolOutput> ShownOutput for &&&&OutputOf<T> {}

/// See [`OutputOf`]: the same in a `Result`, whatever its error is.
pub trait ShownResult {
    /// No schema.
    fn schema(&self) -> Option<JsonSchema> {
        None
    }
}

impl<T: IntoToolOutput, E> ShownResult for &&&OutputOf<Result<T, E>> {}

/// See [`OutputOf`]: described data in a `Result`. It stands before [`DescribedOutput`], to which a `Result` of
/// described data and a described error would be data itself.
pub trait DescribedResult {
    /// The schema, if it is an object's.
    fn schema(&self) -> Option<JsonSchema>;
}

impl<T: Serialize + schemars::JsonSchema, E> DescribedResult for &&OutputOf<Result<T, E>> {
    fn schema(&self) -> Option<JsonSchema> {
        of_object::<T>()
    }
}

/// See [`OutputOf`]: described data.
pub trait DescribedOutput {
    /// The schema, if it is an object's.
    fn schema(&self) -> Option<JsonSchema>;
}

impl<T: Serialize + schemars::JsonSchema> DescribedOutput for &OutputOf<T> {
    fn schema(&self) -> Option<JsonSchema> {
        of_object::<T>()
    }
}

/// Clients take only objects for data. A number or a list is data as well, and promises nothing.
fn of_object<T: schemars::JsonSchema>() -> Option<JsonSchema> {
    of_output::<T>().filter(JsonSchema::describes_object)
}

/// See [`OutputOf`]: everything else.
pub trait AnyOutputType {
    /// No schema.
    fn schema(&self) -> Option<JsonSchema>;
}

impl<T> AnyOutputType for OutputOf<T> {
    fn schema(&self) -> Option<JsonSchema> {
        None
    }
}

/// Can a default be shown in a schema? Asked as `(&&Ask::about(&value)).show()`.
pub trait Showable<T> {
    /// It can.
    fn show(&self) -> fn(T) -> Option<Value>;
}

impl<T: Serialize> Showable<T> for &Ask<T> {
    fn show(&self) -> fn(T) -> Option<Value> {
        |value| serde_json::to_value(value).ok()
    }
}

/// See [`Showable`].
pub trait Unshowable<T> {
    /// It cannot; the model learns of it from the description.
    fn show(&self) -> fn(T) -> Option<Value>;
}

impl<T> Unshowable<T> for Ask<T> {
    fn show(&self) -> fn(T) -> Option<Value> {
        |_| None
    }
}
