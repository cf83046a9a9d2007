//! The values of an effective policy, as the keys of a policy file.

use portcullis_types::SandboxTier;

use super::PolicyValue;
use crate::file::{key_path, keys};

/// One value, or one element of a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ValueRow {
    pub(super) key: String,
    pub(super) value: toml::Value,
    pub(super) is_element: bool,
}

/// All values of a policy, in the order of its text.
#[derive(Debug, Clone, Default)]
pub(super) struct StageValues(Vec<ValueRow>);

impl StageValues {
    /// Reads an effective policy. The demands of reductions are in a section for each sandbox tier. Only this
    /// tier's section counts as values, because the others are copies.
    pub(super) fn read(text: &str, tier: SandboxTier) -> Self {
        let mut values = Self::default();
        let Ok(mut table) = text.parse::<toml::Table>() else { return values };
        let demands = table.remove("sandbox");
        values.add_table(&table, "");
        if let Some(toml::Value::Table(demands)) = demands.and_then(|tiers| tiers.get(tier.as_str()).cloned())
        {
            values.add_table(&demands, "");
        }
        // The text marks each entry that only a reduction has as optional, whatever the reduction says.
        values
            .0
            .retain(|row| !(row.key.ends_with(".optional") && is_without_operators_entry(&table, &row.key)));
        values
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &ValueRow> {
        self.0.iter()
    }

    /// Returns the values of a key: one, or the elements of a list.
    pub(super) fn of(&self, key: &str) -> Vec<&toml::Value> {
        self.0.iter().filter(|row| row.key == key).map(|row| &row.value).collect()
    }

    pub(super) fn has_element(&self, key: &str, element: &toml::Value) -> bool {
        self.0.iter().any(|row| row.key == key && row.is_element && row.value == *element)
    }

    fn add_table(&mut self, table: &toml::Table, path: &str) {
        for (name, value) in table {
            let key = key_path(path, name);
            if let Some(table) = value.as_table() {
                // An empty profile has no value; `unset_keys` lists its keys.
                self.add_table(table, &key);
            } else if let Some(elements) = value.as_array().filter(|elements| !elements.is_empty()) {
                self.0.extend(elements.iter().map(|element| ValueRow {
                    key: key.clone(),
                    value: element.clone(),
                    is_element: true,
                }));
            } else {
                self.0.push(ValueRow { key, value: value.clone(), is_element: false });
            }
        }
    }
}

/// Returns whether the operator's part of the policy has no entry for the tool of this key.
fn is_without_operators_entry(operator: &toml::Table, key: &str) -> bool {
    let tools = operator.get("tools").and_then(toml::Value::as_table);
    let name = key.strip_prefix("tools.").and_then(|rest| rest.split('.').next());
    !name.is_some_and(|name| tools.is_some_and(|tools| tools.contains_key(name)))
}

/// The sections that occur once in a policy, with their keys.
const SINGLE_SECTIONS: &[(&str, &[&str])] = &[
    ("project", keys::PROJECT),
    ("protect", keys::PROTECT),
    ("hide", keys::HIDE),
    ("audit", keys::AUDIT),
    ("modules", keys::MODULES),
    ("shell", keys::SHELL),
    ("egress", keys::EGRESS),
    ("search", keys::SEARCH),
    ("notify", keys::NOTIFY),
    ("limits", keys::LIMITS),
];

/// The sections that a policy has for each name, with their keys.
const NAMED_SECTIONS: &[(&str, &[&str])] =
    &[("profiles", keys::PROFILE), ("tiers", keys::TIER), ("tools", keys::TOOL), ("secrets", keys::SECRET)];

/// Returns the keys of the grammar that have no value.
pub(super) fn unset_keys(values: &[PolicyValue]) -> Vec<String> {
    let is_set = |key: &str| {
        let below = format!("{key}.");
        values.iter().any(|value| value.key == key || value.key.starts_with(&below))
    };
    let mut unset: Vec<String> = Vec::new();
    let mut add = |key: String| {
        if !is_set(&key) && !unset.contains(&key) {
            unset.push(key);
        }
    };
    for key in keys::POLICY {
        match SINGLE_SECTIONS.iter().find(|(section, _)| section == key) {
            Some((section, keys)) => keys.iter().for_each(|key| add(format!("{section}.{key}"))),
            None => add((*key).to_owned()),
        }
    }
    for (section, keys) in NAMED_SECTIONS {
        let prefix = format!("{section}.");
        let names = values.iter().filter_map(|value| value.key.strip_prefix(&prefix)?.split('.').next());
        for name in names {
            keys.iter().for_each(|key| add(format!("{section}.{name}.{key}")));
        }
    }
    unset
}

/// Returns the limit that provides a value, or caps it, if the value's own key does not set it.
pub(super) fn limit_behind(key: &str) -> Option<&'static str> {
    let (section, name) = key.rsplit_once('.')?;
    let is_of_call = section.starts_with("tools.") || section == "shell";
    match name {
        "timeout" if is_of_call => Some("limits.max_timeout"),
        "memory" if is_of_call => Some("limits.wasm_memory"),
        "max_output_bytes" if section.starts_with("tools.") => Some("limits.max_output_bytes"),
        _ => None,
    }
}

/// Returns whether a list of the operator adds to the shipped one.
pub(super) fn adds_to_shipped(key: &str) -> bool {
    matches!(key, "protect.paths" | "protect.kinds")
}
