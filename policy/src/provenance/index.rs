//! The positions of all keys and elements of one policy text.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::SourceLocation;
use crate::{
    PolicyFault, PolicySource,
    file::{Faults, key_path},
};

/// The places of a text's keys, by their paths, and of the elements of its lists.
#[derive(Debug, Clone)]
pub(super) struct TextIndex {
    keys: BTreeMap<String, SourceLocation>,
    elements: Vec<Element>,
    start: SourceLocation,
}

#[derive(Debug, Clone)]
struct Element {
    /// The list's key.
    list: String,
    value: toml::Value,
    location: SourceLocation,
}

impl TextIndex {
    /// Reads a text that loads without faults.
    pub(super) fn read(source: PolicySource<'_>) -> Self {
        let mut index = Self {
            keys: BTreeMap::new(),
            elements: Vec::new(),
            start: SourceLocation::start_of(source.name),
        };
        let faults = Faults::new(source);
        let (table, _errors) = DeTable::parse_recoverable(source.text);
        index.add_table(table.get_ref(), "", &faults);
        index
    }

    /// Returns the position of a key.
    pub(super) fn location(&self, key: &str) -> Option<SourceLocation> {
        self.keys.get(key).cloned()
    }

    /// Returns the position of an element. The effective policy may spell it in a different case than the
    /// text.
    pub(super) fn element_location(&self, list: &str, value: &toml::Value) -> Option<SourceLocation> {
        let element =
            self.elements.iter().find(|element| element.list == list && is_same(&element.value, value));
        element.map(|element| element.location.clone())
    }

    /// Returns the position of the first flow rule that has these labels and sinks, each a comma-separated
    /// list. Without labels, any labels match.
    pub(super) fn flow_location(
        &self,
        prefix: &str,
        after: Option<&str>,
        then: &str,
    ) -> Option<SourceLocation> {
        let has_all = |rule: &toml::Value, key: &str, words: &str| {
            let list = rule.get(key).and_then(toml::Value::as_array);
            words
                .split(", ")
                .all(|word| list.is_some_and(|list| list.iter().any(|text| text.as_str() == Some(word))))
        };
        let list = format!("{prefix}flow");
        let rule = self.elements.iter().find(|element| {
            element.list == list
                && after.is_none_or(|after| has_all(&element.value, "after", after))
                && has_all(&element.value, "then", then)
        });
        rule.map(|rule| rule.location.clone())
    }

    /// Returns the beginning of the text.
    pub(super) fn start(&self) -> SourceLocation {
        self.start.clone()
    }

    fn add_table(&mut self, table: &DeTable<'_>, path: &str, faults: &Faults<'_>) {
        for (name, value) in table {
            let key = key_path(path, name.get_ref());
            self.keys.insert(key.clone(), location_at(name.span().start, faults));
            match value.get_ref() {
                DeValue::Table(table) => self.add_table(table, &key, faults),
                DeValue::Array(elements) => {
                    for element in elements {
                        let location = location_at(element.span().start, faults);
                        self.elements.push(Element {
                            list: key.clone(),
                            value: plain(element.get_ref()),
                            location,
                        });
                    }
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_) => {}
            }
        }
    }
}

fn location_at(offset: usize, faults: &Faults<'_>) -> SourceLocation {
    let PolicyFault { file, line, column, .. } = faults.fault_at(offset, "", "");
    SourceLocation { file, line, column }
}

/// Converts a value to strings, lists and tables. Elements of other types do not occur in a policy.
fn plain(value: &DeValue<'_>) -> toml::Value {
    match value {
        DeValue::Table(table) => toml::Value::Table(
            table.iter().map(|(name, value)| (name.get_ref().to_string(), plain(value.get_ref()))).collect(),
        ),
        DeValue::Array(elements) => {
            toml::Value::Array(elements.iter().map(|element| plain(element.get_ref())).collect())
        }
        DeValue::String(text) => toml::Value::String(text.to_string()),
        DeValue::Boolean(value) => toml::Value::Boolean(*value),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_) => toml::Value::Boolean(false),
    }
}

/// Returns whether two elements are the same: texts are compared without case, lists without order.
fn is_same(written: &toml::Value, effective: &toml::Value) -> bool {
    match (written, effective) {
        (toml::Value::String(written), toml::Value::String(effective)) => {
            written.to_lowercase() == effective.to_lowercase()
        }
        (toml::Value::Array(written), toml::Value::Array(effective)) => {
            let has =
                |list: &[toml::Value], value: &toml::Value| list.iter().any(|other| is_same(other, value));
            written.iter().all(|value| has(effective, value))
                && effective.iter().all(|value| has(written, value))
        }
        (toml::Value::Table(written), toml::Value::Table(effective)) => {
            written.len() == effective.len()
                && written
                    .iter()
                    .all(|(key, value)| effective.get(key).is_some_and(|other| is_same(value, other)))
        }
        (written, effective) => written == effective,
    }
}
