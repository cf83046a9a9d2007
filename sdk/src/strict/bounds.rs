//! Number fields with bounds: enforces the bounds and shows them in the schema.

use std::{fmt, marker::PhantomData};

use schemars::Schema;
use serde::{
    Deserialize, Deserializer,
    de::{Error, IntoDeserializer, Visitor},
};

use crate::LiteralValue;

/// Reads a number or an optional number, and refuses a value outside the bounds.
///
/// # Errors
/// The decoding error, or the bound that the number breaks.
pub fn read_within<'de, T: Bounded<'de>, D: Deserializer<'de>>(
    deserializer: D,
    least: Option<LiteralValue>,
    most: Option<LiteralValue>,
) -> Result<T, D::Error> {
    T::read(deserializer, Range { least, most })
}

/// Returns the schema with only the author's bounds.
#[must_use]
pub fn bounded(mut schema: Schema, least: Option<LiteralValue>, most: Option<LiteralValue>) -> Schema {
    // `format` has the type's width from schemars; the normal form omits it.
    schema.remove("format");
    for (keyword, bound) in [("minimum", least), ("maximum", most)] {
        match bound {
            Some(bound) => schema.insert(keyword.to_owned(), bound.json_value()),
            None => schema.remove(keyword),
        };
    }
    schema
}

/// The allowed range of a number.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    least: Option<LiteralValue>,
    most: Option<LiteralValue>,
}

impl Range {
    fn check<E: Error>(self, value: LiteralValue, value_text: impl fmt::Display) -> Result<(), E> {
        match (self.least, self.most) {
            (Some(least), _) if value.is_below(least) => {
                Err(E::custom(format_args!("{value_text} is less than the minimum of {least}")))
            }
            (_, Some(most)) if most.is_below(value) => {
                Err(E::custom(format_args!("{value_text} is greater than the maximum of {most}")))
            }
            _ => Ok(()),
        }
    }
}

/// A type that can have bounds.
pub trait Bounded<'de>: Sized {
    /// Reads a value within a range.
    ///
    /// # Errors
    /// Same as [`read_within`].
    fn read<D: Deserializer<'de>>(deserializer: D, range: Range) -> Result<Self, D::Error>;
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl<'de> Bounded<'de> for $ty {
            fn read<D: Deserializer<'de>>(deserializer: D, range: Range) -> Result<Self, D::Error> {
                let value = Self::deserialize(deserializer)?;
                // All bounds fit into an `i128`, so a value that does not fit is above every bound.
                let literal = LiteralValue::Integer(i128::try_from(value).unwrap_or(i128::MAX));
                range.check(literal, value).map(|()| value)
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

impl<'de> Bounded<'de> for f64 {
    fn read<D: Deserializer<'de>>(deserializer: D, range: Range) -> Result<Self, D::Error> {
        let value = Self::deserialize(deserializer)?;
        range.check(LiteralValue::Number(value), value).map(|()| value)
    }
}

impl<'de> Bounded<'de> for f32 {
    fn read<D: Deserializer<'de>>(deserializer: D, range: Range) -> Result<Self, D::Error> {
        // Bounds apply to the number as written, not to the nearest 32-bit number.
        Self::deserialize(f64::read(deserializer, range)?.into_deserializer())
    }
}

impl<'de, T: Bounded<'de>> Bounded<'de> for Option<T> {
    fn read<D: Deserializer<'de>>(deserializer: D, range: Range) -> Result<Self, D::Error> {
        deserializer.deserialize_option(Present(range, PhantomData))
    }
}

struct Present<T>(Range, PhantomData<T>);

impl<'de, T: Bounded<'de>> Visitor<'de> for Present<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("option")
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        T::read(deserializer, self.0).map(Some)
    }
}
