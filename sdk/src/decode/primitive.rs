//! Decodes primitives: texts, booleans and numbers.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::integers;
use crate::{LiteralValue, ParamSpec};

/// A type that a parameter can have directly, within an `Option`, or behind a `&`.
pub trait Primitive: DeserializeOwned {
    /// Decodes the JSON text of one argument. The error describes the mismatch, such as
    /// `"x" is not an integer`.
    ///
    /// # Errors
    /// The clause that follows `field 'name': `.
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, String>;
}

impl Primitive for String {
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, String> {
        let text: Self = decode_as(raw, "a string")?;
        if !spec.one_of.is_empty() && !spec.one_of.contains(&text.as_str()) {
            return Err(format!("{} is not one of {:?}", display_raw(raw), spec.one_of));
        }
        Ok(text)
    }
}

impl Primitive for bool {
    fn decode(raw: &RawValue, _: &ParamSpec) -> Result<Self, String> {
        decode_as(raw, "a boolean")
    }
}

impl Primitive for f64 {
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, String> {
        let value = decode_as(raw, "a number")?;
        check_bounds(LiteralValue::Number(value), raw, spec).map(|()| value)
    }
}

impl Primitive for f32 {
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, String> {
        // Bounds apply to the number as written, not to the nearest 32-bit number.
        f64::decode(raw, spec)?;
        let value: Self = decode_as(raw, "a number")?;
        // JSON has no infinity, so an infinite value means that the number was too large for 32 bits.
        if value.is_finite() { Ok(value) } else { Err(format!("{} is too large", display_raw(raw))) }
    }
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Primitive for $ty {
            fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, String> {
                let Some(value) = integer::<Self>(raw) else {
                    return Err(describe_non_integer(raw, Self::MIN, Self::MAX));
                };
                // All bounds fit into an `i128`, so a value that does not fit is above every bound.
                let literal = LiteralValue::Integer(i128::try_from(value).unwrap_or(i128::MAX));
                check_bounds(literal, raw, spec).map(|()| value)
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

/// Checks a number against its bounds.
fn check_bounds(value: LiteralValue, raw: &RawValue, spec: &ParamSpec) -> Result<(), String> {
    match (spec.minimum, spec.maximum) {
        (Some(minimum), _) if value.is_below(minimum) => {
            Err(format!("{} is less than the minimum of {minimum}", display_raw(raw)))
        }
        (_, Some(maximum)) if maximum.is_below(value) => {
            Err(format!("{} is greater than the maximum of {maximum}", display_raw(raw)))
        }
        _ => Ok(()),
    }
}

/// Reads an integer. Like JSON Schema, accepts `5.0` and `5e0` as 5.
fn integer<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    let read = |text: &str| serde_json::from_str(text).ok();
    read(raw.get()).or_else(|| read(&integers::rewrite_whole_numbers(raw.get())?))
}

fn decode_as<T: DeserializeOwned>(raw: &RawValue, expected: &str) -> Result<T, String> {
    match serde_json::from_str(raw.get()) {
        Ok(value) => Ok(value),
        // Replace the decoder's own message, because it names lines and columns.
        Err(_) => Err(format!("{} is not {expected}", display_raw(raw))),
    }
}

fn describe_non_integer(raw: &RawValue, min: impl std::fmt::Display, max: impl std::fmt::Display) -> String {
    let rewritten = integers::rewrite_whole_numbers(raw.get());
    let text = rewritten.as_deref().unwrap_or(raw.get());
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("{} is not between {min} and {max}", display_raw(raw))
    } else {
        format!("{} is not an integer", display_raw(raw))
    }
}

/// The maximum number of characters of a wrong argument that a message repeats.
const SHOWN_CHARS: usize = 60;

fn display_raw(raw: &RawValue) -> String {
    shown_text(raw.get())
}

/// The first [`SHOWN_CHARS`] characters of a text.
pub(super) fn shown_text(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
