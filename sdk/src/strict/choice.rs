//! Allows only one notation of a variant: only its name, or an object whose only key is the name.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess, Unexpected,
        VariantAccess, Visitor,
    },
    forward_to_deserialize_any,
};

/// Passes on only a name, or an object with one key.
#[derive(Debug)]
pub struct Choice<D>(pub D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Choice<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(NameOrObject(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct NameOrObject<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for NameOrObject<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, or an object with one key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<V::Value, E> {
        self.0.visit_enum(VariantName(name, PhantomData))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(KeyedVariant(map))
    }
}

/// A variant that is given only by its name.
struct VariantName<'a, E>(&'a str, PhantomData<E>);

impl<'de, E: Error> EnumAccess<'de> for VariantName<'_, E> {
    type Error = E;
    type Variant = UnitVariantOnly<E>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, UnitVariantOnly<E>), E> {
        seed.deserialize(self.0.into_deserializer()).map(|variant| (variant, UnitVariantOnly(PhantomData)))
    }
}

struct UnitVariantOnly<E>(PhantomData<E>);

impl<E: Error> UnitVariantOnly<E> {
    fn lacks_data<T>() -> Result<T, E> {
        Err(E::invalid_type(Unexpected::UnitVariant, &"a variant with data"))
    }
}

impl<'de, E: Error> VariantAccess<'de> for UnitVariantOnly<E> {
    type Error = E;

    fn unit_variant(self) -> Result<(), E> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, _: S) -> Result<S::Value, E> {
        Self::lacks_data()
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, E> {
        Self::lacks_data()
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, E> {
        Self::lacks_data()
    }
}

/// A variant that is given as an object.
struct KeyedVariant<A>(A);

impl<'de, A: MapAccess<'de>> EnumAccess<'de> for KeyedVariant<A> {
    type Error = A::Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<(S::Value, Self), A::Error> {
        match self.0.next_key_seed(seed)? {
            Some(variant) => Ok((variant, self)),
            None => Err(A::Error::invalid_length(0, &"an object with one key")),
        }
    }
}

impl<'de, A: MapAccess<'de>> KeyedVariant<A> {
    fn single_value<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<S::Value, A::Error> {
        let value = self.0.next_value_seed(seed)?;
        match self.0.next_key::<IgnoredAny>()? {
            None => Ok(value),
            Some(_) => Err(A::Error::invalid_length(2, &"an object with one key")),
        }
    }
}

impl<'de, A: MapAccess<'de>> VariantAccess<'de> for KeyedVariant<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        Err(A::Error::invalid_type(Unexpected::Map, &"only the variant's name"))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.single_value(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.single_value(VariantFields(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.single_value(VariantFields(visitor))
    }
}

/// The named fields of a variant.
struct VariantFields<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for VariantFields<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        deserializer.deserialize_map(self.0)
    }
}
