//! [`PolicyProvenance`]: the text and the line from which each value of a policy comes.
//!
//! A policy is loaded in stages: the operator's text, the section of the sandbox tier, the overlay. Each
//! stage has the values of [`crate::WorkspaceSecurityPolicy::effective_toml`], so every key of the grammar is
//! included. The source of a value is the last stage that changed it. The source of an element of a list is
//! the first stage that has it.

mod index;
mod values;

use std::fmt;

use serde::{Serialize, Serializer};

use crate::{
    LoadOptions,
    effective::{EffectivePolicy, resolve},
    file::{Faults, read_overlay, read_policy},
    flow,
    reduce::reduce,
    render::toml_of,
};

use index::TextIndex;
use values::{StageValues, ValueRow};

/// A position in a text of a policy or of expectations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SourceLocation {
    /// The name under which the text was loaded, usually the file's path.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl SourceLocation {
    /// Returns the start of a text.
    #[must_use]
    pub fn start_of(file: &str) -> Self {
        Self { file: file.to_owned(), line: 1, column: 1 }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The source of a value. In JSON it is the position, or the word `default`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSource {
    /// No text sets the value.
    Default,
    /// This position of a text sets the value.
    Text(SourceLocation),
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Text(location) => write!(f, "{location}"),
        }
    }
}

impl Serialize for ValueSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Default => serializer.serialize_str("default"),
            Self::Text(location) => location.serialize(serializer),
        }
    }
}

/// One value of the effective policy, or one element of a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyValue {
    /// The key's path in a policy file, such as `limits.concurrency`.
    pub key: String,
    /// The value or the element. `None` if the key has none.
    pub value: Option<toml::Value>,
    /// The source of the value.
    pub origin: ValueSource,
}

/// The sources of all values of a policy.
#[derive(Debug, Clone)]
pub struct PolicyProvenance {
    /// The stages in the order in which they are applied. The operator's text is the first.
    stages: Vec<Stage>,
    /// The start of the operator's text.
    operator: SourceLocation,
}

/// The policy after one more text was applied.
#[derive(Debug, Clone)]
struct Stage {
    values: StageValues,
    text: TextIndex,
    /// The path prefix of this stage's keys in its text: `sandbox.TIER.` or nothing.
    prefix: String,
}

impl Stage {
    fn new(effective: &EffectivePolicy, options: &LoadOptions<'_>, text: TextIndex, prefix: String) -> Self {
        Self { values: StageValues::read(&toml_of(effective), options.sandbox_tier), text, prefix }
    }

    fn location(&self, key: &str) -> Option<SourceLocation> {
        self.text.location(&format!("{}{key}", self.prefix))
    }

    fn element_location(&self, key: &str, element: &toml::Value) -> Option<SourceLocation> {
        let key = format!("{}{key}", self.prefix);
        self.text.element_location(&key, element).or_else(|| self.text.location(&key))
    }
}

impl PolicyProvenance {
    /// Reads the texts of a policy again, stage by stage. The texts must belong to a policy that
    /// [`crate::WorkspaceSecurityPolicy::load`] has accepted. Otherwise the sources are meaningless.
    #[must_use]
    pub fn read(options: &LoadOptions<'_>) -> Self {
        // The load has found no faults, so the collectors below are not read.
        let mut faults = Faults::new(options.operator);
        let file = read_policy(&mut faults);
        let mut effective = resolve(&file, &mut faults);
        let operator_text = TextIndex::read(options.operator);
        let mut stages = vec![Stage::new(&effective, options, operator_text.clone(), String::new())];
        for (tier, reduction) in &file.sandbox {
            if *tier == options.sandbox_tier {
                reduce(&mut effective, reduction, &mut faults);
                let prefix = format!("sandbox.{tier}.");
                stages.push(Stage::new(&effective, options, operator_text.clone(), prefix));
            }
        }
        if let Some(overlay) = options.overlay {
            let mut faults = Faults::new(overlay);
            let reduction = read_overlay(&mut faults);
            reduce(&mut effective, &reduction, &mut faults);
            stages.push(Stage::new(&effective, options, TextIndex::read(overlay), String::new()));
        }
        Self { stages, operator: operator_text.start() }
    }

    /// Like [`Self::location_of`], but returns the position of `version`, which every policy has, for a rule
    /// that is in no section of a text.
    #[must_use]
    pub fn location_or_start(&self, rule: &str) -> SourceLocation {
        self.location_of(rule)
            .or_else(|| self.location_of("version"))
            .unwrap_or_else(|| self.operator.clone())
    }

    /// Returns the position of a rule that a decision names, such as `profiles.R.mounts.shared`,
    /// `hide.paths["*.pem"]` or `flow[vault -> shell]`. For a rule that no text has, returns the position of
    /// the nearest enclosing section.
    #[must_use]
    pub fn location_of(&self, rule: &str) -> Option<SourceLocation> {
        if let Some((after, then)) = flow::parse_rule_name(rule) {
            return self.stages.iter().find_map(|stage| stage.text.flow_location(&stage.prefix, after, then));
        }
        let (key, element) = match rule.split_once("[\"") {
            Some((key, rest)) => (key, rest.strip_suffix("\"]")),
            None => (rule, None),
        };
        if let Some(element) = element {
            let element = toml::Value::String(element.to_owned());
            if let ValueSource::Text(location) = self.element_source(key, &element) {
                return Some(location);
            }
        }
        match self.source(key) {
            ValueSource::Text(location) => Some(location),
            ValueSource::Default => self.location_around(key),
        }
    }

    /// Returns every value in force, sorted by key, lists element by element, and every key without a value.
    #[must_use]
    pub fn values(&self) -> Vec<PolicyValue> {
        let Some(last) = self.stages.last() else { return Vec::new() };
        let mut values: Vec<PolicyValue> = last
            .values
            .rows()
            .map(|ValueRow { key, value, is_element }| PolicyValue {
                key: key.clone(),
                value: Some(value.clone()),
                origin: if *is_element { self.element_source(key, value) } else { self.source(key) },
            })
            .collect();
        let unset = values::unset_keys(&values);
        values.extend(unset.into_iter().map(|key| PolicyValue {
            key,
            value: None,
            origin: ValueSource::Default,
        }));
        values
    }

    /// Returns the source of a key's whole value: the last stage that changed it.
    fn source(&self, key: &str) -> ValueSource {
        for (index, stage) in self.stages.iter().enumerate().rev() {
            let is_changed = match index.checked_sub(1).and_then(|before| self.stages.get(before)) {
                Some(before) => before.values.of(key) != stage.values.of(key),
                None => true,
            };
            if !is_changed {
                continue;
            }
            let inherited = values::limit_behind(key).and_then(|limit| stage.location(limit));
            return match stage.location(key).or(inherited) {
                Some(location) => ValueSource::Text(location),
                None if index == 0 => ValueSource::Default,
                // An entry that only a reduction has adds its defaults.
                None if self.stages[index - 1].values.of(key).is_empty() => ValueSource::Default,
                // Another line of the stage has changed the value.
                None => ValueSource::Text(stage.text.start()),
            };
        }
        ValueSource::Default
    }

    /// Returns the source of an element: the first stage that has it.
    fn element_source(&self, key: &str, element: &toml::Value) -> ValueSource {
        let first = self.stages.iter().enumerate().find(|(_, stage)| stage.values.has_element(key, element));
        let Some((index, stage)) = first else { return ValueSource::Default };
        // A list of the operator adds to the shipped list, so an element that is not in the text is a
        // default.
        let location = match index {
            0 => stage.text.element_location(key, element),
            _ => stage.element_location(key, element),
        };
        match location {
            Some(location) => ValueSource::Text(location),
            None if values::adds_to_shipped(key) => ValueSource::Default,
            None => self.source(key),
        }
    }

    /// Returns the position of the nearest enclosing section of a key, in the operator's text.
    fn location_around(&self, key: &str) -> Option<SourceLocation> {
        let operator = self.stages.first()?;
        let mut around = key;
        loop {
            around = around.rsplit_once('.')?.0;
            if let Some(location) = operator.location(around) {
                return Some(location);
            }
        }
    }
}

#[cfg(test)]
mod tests;
