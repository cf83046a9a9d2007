//! Reads, writes and describes a field of an `#[args]` type.
//!
//! An unsupported field type must be reported once, by [`assert_field`]. The derived code would report it five times
//! more, so it uses these traits through method resolution, with fallbacks that never run.

use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};

pub use super::bounds::{Bounded, Range, bounded, read_within};

/// A supported type for a field of an `#[args]` type.
#[diagnostic::on_unimplemented(
    message = "a field cannot be of type `{Self}`: it has no schema",
    label = "not a type of an argument",
    note = "put `#[portcullis_sdk::args]` on the definition of `{Self}`",
    note = "for a type of another crate: it needs `Deserialize`, `Serialize` and `JsonSchema`"
)]
pub trait FieldType: DeserializeOwned + Serialize + JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + Serialize + JsonSchema> FieldType for T {}

/// Compiles only for a supported field type.
pub const fn assert_field<T: FieldType>() {}

/// Selects the implementations for a field's type: `(&&Field::<T>::NEW).read(…)`.
#[derive(Debug)]
pub struct Field<T>(PhantomData<fn() -> T>);

impl<T> Field<T> {
    /// The value on which method resolution selects an implementation.
    pub const NEW: Self = Self(PhantomData);
}

/// Reads a field.
pub trait Read<'de, T> {
    /// Reads the field.
    ///
    /// # Errors
    /// The decoding error.
    fn read<D: Deserializer<'de>>(&self, deserializer: D) -> Result<T, D::Error>;
}

impl<'de, T: Deserialize<'de>> Read<'de, T> for &Field<T> {
    fn read<D: Deserializer<'de>>(&self, deserializer: D) -> Result<T, D::Error> {
        T::deserialize(deserializer)
    }
}

/// The fallback of [`Read`].
pub trait ReadFallback<'de, T> {
    /// Never runs.
    ///
    /// # Errors
    /// Never returns: the call panics.
    fn read<D: Deserializer<'de>>(&self, deserializer: D) -> Result<T, D::Error>;
}

impl<'de, T> ReadFallback<'de, T> for Field<T> {
    fn read<D: Deserializer<'de>>(&self, _: D) -> Result<T, D::Error> {
        unreachable!("the compiler refused this type")
    }
}

/// Writes a field.
pub trait Write<T> {
    /// Writes the field.
    ///
    /// # Errors
    /// The encoding error.
    fn write<S: Serializer>(&self, value: &T, serializer: S) -> Result<S::Ok, S::Error>;
}

impl<T: Serialize> Write<T> for &Field<T> {
    fn write<S: Serializer>(&self, value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }
}

/// The fallback of [`Write`].
pub trait WriteFallback<T> {
    /// Never runs.
    ///
    /// # Errors
    /// Never returns: the call panics.
    fn write<S: Serializer>(&self, value: &T, serializer: S) -> Result<S::Ok, S::Error>;
}

impl<T> WriteFallback<T> for Field<T> {
    fn write<S: Serializer>(&self, _: &T, _: S) -> Result<S::Ok, S::Error> {
        unreachable!("the compiler refused this type")
    }
}

/// Describes a field.
pub trait Describe {
    /// The schema of the field's type.
    fn schema(&self, generator: &mut SchemaGenerator) -> Schema;

    /// The schema of the field's type, inlined instead of referenced, because a tag is added to its properties.
    fn schema_beside_tag(&self, generator: &mut SchemaGenerator) -> Schema;
}

impl<T: JsonSchema> Describe for &Field<T> {
    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }

    fn schema_beside_tag(&self, generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// The fallback of [`Describe`].
pub trait DescribeFallback {
    /// Never runs.
    fn schema(&self, generator: &mut SchemaGenerator) -> Schema;

    /// Never runs.
    fn schema_beside_tag(&self, generator: &mut SchemaGenerator) -> Schema;
}

impl<T> DescribeFallback for Field<T> {
    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        unreachable!("the compiler refused this type")
    }

    fn schema_beside_tag(&self, _: &mut SchemaGenerator) -> Schema {
        unreachable!("the compiler refused this type")
    }
}
