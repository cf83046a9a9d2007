//! Bounded counts by name: callers and logs choose names, so there may be any number of them.

use std::collections::BTreeMap;

/// The maximum number of names of a tally. The others are counted together.
pub(super) const MAX_NAMES: usize = 2_000;

/// The maximum stored length of a name, in bytes. A page shows fewer characters.
const MAX_NAME_BYTES: usize = 1_024;

/// A value for each of the first [`MAX_NAMES`] names, and one for all others together.
#[derive(Debug)]
pub(super) struct Tally<K, V> {
    named: BTreeMap<K, V>,
    other_values: Option<V>,
}

impl<K, V> Default for Tally<K, V> {
    fn default() -> Self {
        Self { named: BTreeMap::new(), other_values: None }
    }
}

impl<K: Ord, V: Default> Tally<K, V> {
    /// Returns the value of a name.
    pub(super) fn of(&mut self, name: K) -> &mut V {
        if self.named.len() < MAX_NAMES || self.named.contains_key(&name) {
            return self.named.entry(name).or_default();
        }
        self.other_values.get_or_insert_default()
    }

    /// Returns the names with their values, ordered by descending `weight`.
    pub(super) fn sorted_by_weight(&self, weight: impl Fn(&V) -> u64) -> Vec<(&K, &V)> {
        let mut entries: Vec<_> = self.named.iter().collect();
        entries.sort_by_key(|(_, value)| std::cmp::Reverse(weight(value)));
        entries
    }

    /// Returns the value of all names that did not fit.
    pub(super) fn other_values(&self) -> Option<&V> {
        self.other_values.as_ref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }
}

/// Truncates a name from a row to a bounded length.
pub(super) fn name(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_NAME_BYTES.min(text.len()));
    text[..end].to_owned()
}

/// Like [`name`], but returns `–` for a row without one.
pub(super) fn name_or_none(text: Option<&str>) -> String {
    text.map_or_else(|| "–".to_owned(), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_are_counted_together() {
        let mut tally = Tally::<String, u64>::default();
        for number in 0..MAX_NAMES + 5 {
            *tally.of(format!("{number}")) += 1;
        }
        *tally.of("7".to_owned()) += 1;
        assert_eq!(tally.other_values(), Some(&5));
        let heaviest = tally.sorted_by_weight(|count| *count);
        assert_eq!((heaviest.len(), heaviest[0]), (MAX_NAMES, (&"7".to_owned(), &2)));
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        assert_eq!(name(&"ä".repeat(2_000)).len(), MAX_NAME_BYTES);
        assert_eq!(name(&format!("a{}", "ä".repeat(2_000))).len(), MAX_NAME_BYTES - 1);
        assert_eq!(name_or_none(None), "–");
    }
}
