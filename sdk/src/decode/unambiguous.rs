//! Keys that come twice. A reader that keeps the first and one that keeps the last would see different
//! calls, and a map keeps the last without a word.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// Refuses a text in which an object has a key twice; says which.
pub(super) fn ensure(text: &str) -> Result<(), String> {
    match serde_json::from_str::<Unambiguous>(text) {
        Err(error) if error.is_data() => {
            let message = error.to_string();
            Err(message.split(" at line ").next().unwrap_or_default().to_owned())
        }
        // The syntax was checked when the arguments were taken apart; what is too deep fails to decode.
        _ => Ok(()),
    }
}

/// Any JSON value whose objects have each key once. Keeps nothing.
struct Unambiguous;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Walk)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = Unambiguous;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_unit<E>(self) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unambiguous, A::Error> {
        while items.next_element::<Unambiguous>()?.is_some() {}
        Ok(Unambiguous)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Unambiguous, A::Error> {
        let mut seen = Seen::default();
        while let Some(Key(key)) = members.next_key()? {
            if seen.contains(&key) {
                members.next_value::<IgnoredAny>()?;
                return Err(A::Error::custom(format_args!("key '{key}' is given twice")));
            }
            members.next_value::<Unambiguous>()?;
            seen.insert(key);
        }
        Ok(Unambiguous)
    }
}

/// The keys of one object so far. Most objects have few, and a list has many objects: the first keys need no
/// allocation.
#[derive(Default)]
struct Seen<'de> {
    few: [Option<Cow<'de, str>>; FEW],
    more: BTreeSet<Cow<'de, str>>,
}

impl<'de> Seen<'de> {
    fn contains(&self, key: &str) -> bool {
        self.few.iter().map_while(Option::as_deref).any(|seen| seen == key) || self.more.contains(key)
    }

    fn insert(&mut self, key: Cow<'de, str>) {
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(key),
            None => {
                self.more.insert(key);
            }
        }
    }
}

const FEW: usize = 8;

/// A key, lent by the text unless it has escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Borrowed(key)))
    }

    fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Owned(key.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_twice_is_found_at_any_depth() {
        assert_eq!(ensure(r#"{"a":1,"b":[{"a":1},{"a":2}]}"#), Ok(()));
        assert_eq!(ensure(r#"[{"x":{"a":1,"\u0061":2}}]"#), Err("key 'a' is given twice".to_owned()));
    }

    #[test]
    fn a_key_twice_is_found_among_many() {
        let keys = |last: usize| {
            let keys: Vec<String> = (0..30).chain([last]).map(|key| format!(r#""k{key}":{key}"#)).collect();
            format!("{{{}}}", keys.join(","))
        };
        assert_eq!(ensure(&keys(30)), Ok(()));
        for twice in [0, FEW - 1, FEW, 29] {
            assert_eq!(ensure(&keys(twice)), Err(format!("key 'k{twice}' is given twice")));
        }
    }
}
