//! Finds the decoder of a type, or a stub.
//!
//! A type that cannot be a parameter is reported once, where the tool's schema needs it. If the decoding code
//! required a decodable type too, the compiler would report the type twice. The decoding code therefore uses method
//! resolution (autoref specialization): it prefers the implementation for decodable types, and falls back to a stub
//! that never runs.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::structured;
use crate::{ParamSpec, ToolSpec};

/// Decodes one argument, or lists its faults.
pub type DecodeFn<T> = fn(&RawValue, &ParamSpec) -> Result<T, Faults>;

/// The faults of one argument.
#[derive(Debug)]
pub struct Faults {
    /// A text for each fault.
    pub texts: Vec<String>,
    /// Makes an example, if an example helps more than the texts. This is a function pointer, so that a tool with only
    /// primitives does not link the code for examples.
    pub example: Option<fn(&ToolSpec) -> String>,
}

/// Selects the decoder of a type: `(&&Decoder::<T>::NEW).function()`.
#[derive(Debug)]
pub struct Decoder<T>(PhantomData<fn() -> T>);

impl<T> Decoder<T> {
    /// The value on which method resolution selects an implementation.
    pub const NEW: Self = Self(PhantomData);
}

/// Implemented for types that can be decoded.
pub trait Decodes<T> {
    /// Returns the function that decodes the argument.
    fn function(&self) -> DecodeFn<T>;
}

impl<T: DeserializeOwned> Decodes<T> for &Decoder<T> {
    fn function(&self) -> DecodeFn<T> {
        structured::decode::<T>
    }
}

/// Implemented for all other types. Code with such a type does not compile anyway, because the tool's schema needs
/// the type.
pub trait CannotDecode<T> {
    /// Returns a stub that never runs.
    fn function(&self) -> DecodeFn<T>;
}

impl<T> CannotDecode<T> for Decoder<T> {
    fn function(&self) -> DecodeFn<T> {
        |_, _| unreachable!("the compiler refused this type")
    }
}
