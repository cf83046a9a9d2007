//! Walks the tables of a parsed text and refuses unknown keys.

use std::fmt::Display;

use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

use portcullis_types::{EscapedText, display::near::nearest_name};

use super::{Faults, Located};

/// A table of the text.
#[derive(Debug)]
pub(crate) struct Section<'t> {
    table: &'t DeTable<'t>,
    /// The path of the table's key. Empty for the whole text.
    path: String,
    /// The section's byte offset in the policy's text.
    pub(crate) offset: usize,
}

/// A key and its value.
#[derive(Debug)]
pub(crate) struct SectionEntry<'t> {
    /// The key without its path.
    pub(crate) name: &'t str,
    /// The key's path.
    pub(crate) path: String,
    /// The byte offset of the key.
    pub(crate) key_offset: usize,
    /// The byte offset of the value.
    pub(crate) offset: usize,
    value: &'t DeValue<'t>,
}

impl<'t> Section<'t> {
    /// Returns the section of the whole text.
    pub(crate) fn root(table: &'t DeTable<'t>) -> Self {
        Self { table, path: String::new(), offset: 0 }
    }

    /// Returns the path of the table's key. Empty for the whole text.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the path of a key of this table.
    pub(crate) fn path_of(&self, name: &str) -> String {
        key_path(&self.path, name)
    }

    /// Returns all entries, sorted by key.
    pub(crate) fn entries(&self) -> impl Iterator<Item = SectionEntry<'t>> {
        self.table.iter().map(|(name, value)| self.entry_of(name, value))
    }

    /// Returns the entry of a key.
    pub(crate) fn entry(&self, name: &str) -> Option<SectionEntry<'t>> {
        let mut entries = self.table.iter();
        let (name, value) = entries.find(|(key, _)| key.get_ref() == name)?;
        Some(self.entry_of(name, value))
    }

    /// Returns the table at a key, if the key is present and its value is a table.
    pub(crate) fn section(&self, name: &str, faults: &mut Faults<'_>) -> Option<Section<'t>> {
        self.entry(name)?.section(faults)
    }

    /// Returns the entries of the table at a key. Empty if the key is absent or the table has too many
    /// entries.
    pub(crate) fn entries_of(&self, name: &str, faults: &mut Faults<'_>) -> Vec<SectionEntry<'t>> {
        let Some(section) = self.section(name, faults) else { return Vec::new() };
        let count = section.table.len();
        if count > MAX_ENTRIES {
            let message = format!("{count} entries; at most {MAX_ENTRIES} are allowed");
            faults.add(section.offset, section.path(), message);
            return Vec::new();
        }
        section.entries().collect()
    }

    fn entry_of(&self, name: &'t Spanned<DeString<'t>>, value: &'t Spanned<DeValue<'t>>) -> SectionEntry<'t> {
        SectionEntry {
            name: name.get_ref(),
            path: self.path_of(name.get_ref()),
            key_offset: name.span().start,
            offset: value.span().start,
            value: value.get_ref(),
        }
    }

    /// Adds a fault for every key that is not in `known`.
    pub(crate) fn refuse_unknown(&self, known: &[&str], faults: &mut Faults<'_>) {
        for entry in self.entries() {
            if !known.contains(&entry.name) {
                let suggestion = did_you_mean(entry.name, known.iter().copied());
                faults.add(entry.key_offset, &entry.path, format!("unknown key; {suggestion}"));
            }
        }
    }
}

impl<'t> SectionEntry<'t> {
    /// Returns the value as a table.
    pub(crate) fn section(&self, faults: &mut Faults<'_>) -> Option<Section<'t>> {
        match self.value.as_table() {
            Some(table) => Some(Section { table, path: self.path.clone(), offset: self.offset }),
            None => self.refuse_type("a table", faults),
        }
    }

    /// Returns whether the value is a table.
    pub(crate) fn is_table(&self) -> bool {
        self.value.as_table().is_some()
    }

    /// Returns whether the value is a list.
    pub(crate) fn is_list(&self) -> bool {
        self.value.as_array().is_some()
    }

    /// Returns the value as a string.
    pub(crate) fn text(&self, faults: &mut Faults<'_>) -> Option<&'t str> {
        match self.value.as_str() {
            Some(text) => Some(text),
            None => self.refuse_type("a string", faults),
        }
    }

    /// Returns the value as a boolean.
    pub(crate) fn boolean(&self, faults: &mut Faults<'_>) -> Option<bool> {
        match self.value.as_bool() {
            Some(value) => Some(value),
            None => self.refuse_type("`true` or `false`", faults),
        }
    }

    /// Returns the value as a whole number, if it is one.
    pub(crate) fn as_integer(&self) -> Option<i128> {
        let integer = self.value.as_integer()?;
        // A number that is too large becomes the largest `i128`, which is above every bound.
        Some(i128::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i128::MAX))
    }

    /// Returns the value as a list. The path of each element ends with the element's index.
    pub(crate) fn list(&self, faults: &mut Faults<'_>) -> Option<Vec<SectionEntry<'t>>> {
        let Some(elements) = self.value.as_array() else {
            return self.refuse_type("a list", faults);
        };
        let elements = elements.iter().enumerate().map(|(index, element)| SectionEntry {
            name: self.name,
            path: format!("{}[{index}]", self.path),
            key_offset: element.span().start,
            offset: element.span().start,
            value: element.get_ref(),
        });
        Some(elements.collect())
    }

    /// Returns the parsed text of the value. A parse error is a fault at the value.
    pub(crate) fn parsed<T, E: Display>(
        &self,
        faults: &mut Faults<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(faults)?;
        parse(text).map_err(|error| self.refuse(faults, error.to_string())).ok()
    }

    /// Returns the value as a day: a string, or a TOML date.
    pub(crate) fn day<T, E: Display>(
        &self,
        faults: &mut Faults<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match self.value.as_datetime() {
            Some(date) => {
                parse(&date.to_string()).map_err(|error| self.refuse(faults, error.to_string())).ok()
            }
            None => self.parsed(faults, parse),
        }
    }

    /// Returns the parsed text of the key. A parse error is a fault at the key.
    pub(crate) fn parsed_name<T, E: Display>(
        &self,
        faults: &mut Faults<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        parse(self.name).map_err(|error| faults.add(self.key_offset, &self.path, error.to_string())).ok()
    }

    /// Adds a fault at the value.
    pub(crate) fn refuse(&self, faults: &mut Faults<'_>, message: impl AsRef<str>) {
        faults.add(self.offset, &self.path, message);
    }

    /// Adds a fault for a value of the wrong type.
    pub(crate) fn refuse_type<T>(&self, expected: &str, faults: &mut Faults<'_>) -> Option<T> {
        self.refuse(faults, format!("expected {expected}, found {}", self.value.type_str()));
        None
    }

    /// Attaches this entry's position to a value.
    pub(crate) fn located<T>(&self, value: T) -> Located<T> {
        Located { value, offset: self.offset, key: self.path.clone() }
    }

    /// Attaches the position of this entry's key to a value.
    pub(crate) fn located_at_key<T>(&self, value: T) -> Located<T> {
        Located { value, offset: self.key_offset, key: self.path.clone() }
    }
}

/// Returns the path of a key in the table at `path`. An empty path means the whole text.
pub(crate) fn key_path(path: &str, name: &str) -> String {
    let is_bare_key_byte = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let quote = if !name.is_empty() && name.bytes().all(is_bare_key_byte) { "" } else { "\"" };
    let dot = if path.is_empty() { "" } else { "." };
    format!("{path}{dot}{quote}{}{quote}", EscapedText(name))
}

/// Suggests a correction of an unknown name: the nearest known name, or else all known names.
pub(crate) fn did_you_mean<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    if let Some(suggestion) = nearest_name(name, known.clone()) {
        return format!("did you mean `{suggestion}`?");
    }
    let quoted_names: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    if quoted_names.is_empty() {
        "there are none".to_owned()
    } else {
        format!("known are {}", quoted_names.join(", "))
    }
}

/// The maximum number of entries of a table. Each mount, profile, tier or tool costs time at every start, and an agent
/// may have written the overlay of a workspace.
pub(super) const MAX_ENTRIES: usize = 1024;
