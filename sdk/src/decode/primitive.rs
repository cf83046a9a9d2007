//! Texts, booleans and numbers.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::integers;
use crate::{LiteralValue, ParamSpec};

/// A type that a parameter can have, within an `Option` or behind a `&`.
pub trait Primitive: DeserializeOwned {
    /// Decodes the JSON text of one argument. The error describes the mismatch, as in
    /// `"x" is not an integer`.
    ///
    /// # Errors
    /// The clause that follows `field 'name': `.
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, String>;
}

impl Primitive for String {
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, String> {
        let text: Self = typed(raw, "a string")?;
        if !spec.one_of.is_empty() && !spec.one_of.contains(&text.as_str()) {
            return Err(format!("{} is not one of {:?}", shown(raw), spec.one_of));
        }
        Ok(text)
    }
}

impl Primitive for bool {
    fn decode(raw: &RawValue, _: &ParamSpec) -> Result<Self, String> {
        typed(raw, "a boolean")
    }
}

impl Primitive for f64 {
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, String> {
        let value = typed(raw, "a number")?;
        within(LiteralValue::Number(value), raw, spec).map(|()| value)
    }
}

impl Primitive for f32 {
    fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, String> {
        // Bounds apply to the number as written, not to the nearest 32-bit one.
        f64::decode(raw, spec)?;
        let value: Self = typed(raw, "a number")?;
        // JSON has no infinity: the number was too large for 32 bits.
        if value.is_finite() { Ok(value) } else { Err(format!("{} is too large", shown(raw))) }
    }
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Primitive for $ty {
            fn decode(raw: &RawValue, spec: &ParamSpec) -> Result<Self, String> {
                let Some(value) = integer::<Self>(raw) else {
                    return Err(not_an_integer(raw, Self::MIN, Self::MAX));
                };
                // Bounds fit `i128`; a value that does not fit is above all of them.
                let wide = LiteralValue::Integer(i128::try_from(value).unwrap_or(i128::MAX));
                within(wide, raw, spec).map(|()| value)
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

/// Checks a number against its bounds.
fn within(value: LiteralValue, raw: &RawValue, spec: &ParamSpec) -> Result<(), String> {
    match (spec.minimum, spec.maximum) {
        (Some(minimum), _) if value.is_below(minimum) => {
            Err(format!("{} is less than the minimum of {minimum}", shown(raw)))
        }
        (_, Some(maximum)) if maximum.is_below(value) => {
            Err(format!("{} is greater than the maximum of {maximum}", shown(raw)))
        }
        _ => Ok(()),
    }
}

/// Reads an integer; accepts `5.0` and `5e0` as 5, like JSON Schema.
fn integer<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    let read = |text: &str| serde_json::from_str(text).ok();
    read(raw.get()).or_else(|| read(&integers::numbers(raw.get())?))
}

fn typed<T: DeserializeOwned>(raw: &RawValue, expected: &str) -> Result<T, String> {
    match serde_json::from_str(raw.get()) {
        Ok(value) => Ok(value),
        // The decoder's own message speaks of lines and columns.
        Err(_) => Err(format!("{} is not {expected}", shown(raw))),
    }
}

fn not_an_integer(raw: &RawValue, min: impl std::fmt::Display, max: impl std::fmt::Display) -> String {
    let whole = integers::numbers(raw.get());
    let text = whole.as_deref().unwrap_or(raw.get());
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("{} is not between {min} and {max}", shown(raw))
    } else {
        format!("{} is not an integer", shown(raw))
    }
}

/// The number of characters of a wrong argument that a message repeats.
const SHOWN_CHARS: usize = 60;

fn shown(raw: &RawValue) -> String {
    shown_text(raw.get())
}

/// The beginning of a text.
pub(super) fn shown_text(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
