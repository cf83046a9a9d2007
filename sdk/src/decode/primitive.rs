//! Decodes primitives: texts, booleans and numbers.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::integers;
use crate::{LiteralValue, ParamSpec};

/// The mismatch of an argument and its parameter. Its text is the clause that follows `field 'name': `, such
/// as `"x" is not an integer`.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    /// The beginning of the argument, as JSON.
    argument: String,
    kind: MismatchKind,
}

#[derive(Debug, Clone, PartialEq)]
enum MismatchKind {
    /// The argument has another type than this one.
    Type(&'static str),
    /// The argument is none of the allowed texts.
    NotOneOf(&'static [&'static str]),
    /// The argument is not between the bounds of the integer's type, which are given as text.
    NotBetween(String, String),
    /// The argument is less than this minimum.
    Below(LiteralValue),
    /// The argument is greater than this maximum.
    Above(LiteralValue),
    /// The argument is too large for a 32-bit number.
    TooLarge,
}

impl Mismatch {
    fn new(raw: &RawValue, kind: MismatchKind) -> Self {
        Self { argument: shown_text(raw.get()), kind }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let argument = &self.argument;
        match &self.kind {
            MismatchKind::Type(expected) => write!(f, "{argument} is not {expected}"),
            MismatchKind::NotOneOf(texts) => write!(f, "{argument} is not one of {texts:?}"),
            MismatchKind::NotBetween(min, max) => write!(f, "{argument} is not between {min} and {max}"),
            MismatchKind::Below(minimum) => write!(f, "{argument} is less than the minimum of {minimum}"),
            MismatchKind::Above(maximum) => write!(f, "{argument} is greater than the maximum of {maximum}"),
            MismatchKind::TooLarge => write!(f, "{argument} is too large"),
        }
    }
}

impl std::error::Error for Mismatch {}

/// A type that a parameter can have directly, within an `Option`, or behind a `&`.
pub trait Primitive: DeserializeOwned {
    /// Decodes the JSON text of one argument.
    ///
    /// # Errors
    /// [`Mismatch`] if the argument has another type, or a value that the parameter does not allow.
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, Mismatch>;
}

impl Primitive for String {
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, Mismatch> {
        let text: Self = decode_as(raw, "a string")?;
        if !spec.one_of.is_empty() && !spec.one_of.contains(&text.as_str()) {
            return Err(Mismatch::new(raw, MismatchKind::NotOneOf(spec.one_of)));
        }
        Ok(text)
    }
}

impl Primitive for bool {
    fn decode(raw: &RawValue, _: &ParamSpec) -> Result<Self, Mismatch> {
        decode_as(raw, "a boolean")
    }
}

impl Primitive for f64 {
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, Mismatch> {
        let value = decode_as(raw, "a number")?;
        check_bounds(LiteralValue::Number(value), raw, spec).map(|()| value)
    }
}

impl Primitive for f32 {
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, Mismatch> {
        // Bounds apply to the number as written, not to the nearest 32-bit number.
        f64::decode(raw, spec)?;
        let value: Self = decode_as(raw, "a number")?;
        // JSON has no infinity, so an infinite value means that the number was too large for 32 bits.
        if value.is_finite() { Ok(value) } else { Err(Mismatch::new(raw, MismatchKind::TooLarge)) }
    }
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Primitive for $ty {
            fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, Mismatch> {
                let Some(value) = integer::<Self>(raw) else {
                    return Err(non_integer(raw, Self::MIN, Self::MAX));
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
fn check_bounds(value: LiteralValue, raw: &RawValue, spec: &ParamSpec) -> Result<(), Mismatch> {
    match (spec.minimum, spec.maximum) {
        (Some(minimum), _) if value.is_below(minimum) => {
            Err(Mismatch::new(raw, MismatchKind::Below(minimum)))
        }
        (_, Some(maximum)) if maximum.is_below(value) => {
            Err(Mismatch::new(raw, MismatchKind::Above(maximum)))
        }
        _ => Ok(()),
    }
}

/// Reads an integer. Like JSON Schema, accepts `5.0` and `5e0` as 5.
fn integer<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    let read = |text: &str| serde_json::from_str(text).ok();
    read(raw.get()).or_else(|| read(&integers::rewrite_whole_numbers(raw.get())?))
}

fn decode_as<T: DeserializeOwned>(raw: &RawValue, expected: &'static str) -> Result<T, Mismatch> {
    match serde_json::from_str(raw.get()) {
        Ok(value) => Ok(value),
        // Replace the decoder's own message, because it names lines and columns.
        Err(_) => Err(Mismatch::new(raw, MismatchKind::Type(expected))),
    }
}

fn non_integer(raw: &RawValue, min: impl fmt::Display, max: impl fmt::Display) -> Mismatch {
    let rewritten = integers::rewrite_whole_numbers(raw.get());
    let text = rewritten.as_deref().unwrap_or(raw.get());
    let digits = text.strip_prefix('-').unwrap_or(text);
    let kind = if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        MismatchKind::NotBetween(min.to_string(), max.to_string())
    } else {
        MismatchKind::Type("an integer")
    };
    Mismatch::new(raw, kind)
}

/// The maximum number of characters of a wrong argument that a message repeats.
const MAX_SHOWN_CHARS: usize = 60;

/// The first [`MAX_SHOWN_CHARS`] characters of a text.
pub(super) fn shown_text(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
