//! [`BoundedList`]: a list in an event, with a limit that applies while the event is parsed.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

use super::ReadError;
use crate::MAX_LISTED_CALLS;

/// The maximum number of choices in an event; requests ask for only one. Each choice may list calls, so the
/// limit of calls bounds an event only together with this limit.
pub(super) const MAX_CHOICES: usize = 16;

/// A list that may be missing, with at most `MAX` items. The default is the limit of calls in a response.
///
/// An item may need two bytes on the wire and a hundred in memory, so without the limit, one event could fill
/// the memory. Items past the limit are not kept.
#[derive(Debug)]
pub(super) struct BoundedList<T, const MAX: usize = MAX_LISTED_CALLS> {
    items: Vec<T>,
    has_more: bool,
}

impl<T, const MAX: usize> BoundedList<T, MAX> {
    /// Returns the items, or an error if there were too many.
    pub(super) fn items(self) -> Result<Vec<T>, ReadError> {
        if self.has_more { Err(ReadError::TooLarge) } else { Ok(self.items) }
    }
}

impl<T, const MAX: usize> Default for BoundedList<T, MAX> {
    fn default() -> Self {
        Self { items: Vec::new(), has_more: false }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(Items::<T, MAX>(PhantomData))
    }
}

struct Items<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
    type Value = BoundedList<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or null")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(BoundedList::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < MAX {
            match list.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(BoundedList { items, has_more: false }),
            }
        }
        // serde's parser requires that the list is read to its end.
        let mut has_more = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            has_more = true;
        }
        Ok(BoundedList { items, has_more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BoundedList<u8, MAX_CHOICES>, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_list_is_read_up_to_the_limit() {
        assert!(read("null").expect("none").items().expect("few").is_empty());
        assert_eq!(read("[1, 2]").expect("a list").items().expect("few"), [1, 2]);
        let list_text = |times: usize| format!("[{}]", vec!["1"; times].join(","));
        assert_eq!(
            read(&list_text(MAX_CHOICES)).expect("a list").items().expect("just within").len(),
            MAX_CHOICES
        );
        let long = read(&list_text(MAX_CHOICES + 1)).expect("a list");
        assert_eq!(long.items.len(), MAX_CHOICES);
        assert!(matches!(long.items(), Err(ReadError::TooLarge)));
    }

    #[test]
    fn value_that_is_not_a_list_is_refused() {
        for text in ["{}", "5", "\"x\"", "[1", "[\"x\"]"] {
            read(text).expect_err(text);
        }
    }
}
