//! Finds the decoder of a type, or stands in for one.
//!
//! A type that is no parameter is reported once, where the tool's schema needs it. If the decoding code
//! needed it too, the compiler would report it twice; so there the type is looked up by method resolution,
//! which prefers the implementation for types that decode and falls back to one that never runs.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::structured;
use crate::{ParamSpec, ToolSpec};

/// Decodes one argument; else says all that is wrong with it.
pub type DecodeFn<T> = fn(&RawValue, &ParamSpec) -> Result<T, Mistakes>;

/// What is wrong with one argument.
#[derive(Debug)]
pub struct Mistakes {
    /// Each in words.
    pub texts: Vec<String>,
    /// Makes an example, where that says more than the words. A function, so that a tool of primitives does
    /// not carry what makes examples.
    pub example: Option<fn(&ToolSpec) -> String>,
}

/// Asks for the decoder of a type: `(&&Decoder::<T>::NEW).function()`.
#[derive(Debug)]
pub struct Decoder<T>(PhantomData<fn() -> T>);

impl<T> Decoder<T> {
    /// The question.
    pub const NEW: Self = Self(PhantomData);
}

/// The answer for types that decode.
pub trait Decodes<T> {
    /// The decoder.
    fn function(&self) -> DecodeFn<T>;
}

impl<T: DeserializeOwned> Decodes<T> for &Decoder<T> {
    fn function(&self) -> DecodeFn<T> {
        structured::decode::<T>
    }
}

/// The answer for all others, in code that does not compile for another reason.
pub trait CannotDecode<T> {
    /// Never run.
    fn function(&self) -> DecodeFn<T>;
}

impl<T> CannotDecode<T> for Decoder<T> {
    fn function(&self) -> DecodeFn<T> {
        |_, _| unreachable!("the compiler refused this type")
    }
}
