//! The mistakes in a text of configurations, each with its JSON path.

use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

/// One mistake in a text of configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationFault {
    /// The path in the JSON, such as `[1].timeout`. Empty for the text as a whole.
    pub location: String,
    /// The mistake, and how to fix it.
    pub fault: String,
}

impl fmt::Display for ConfigurationFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.location.is_empty() {
            f.write_str(&self.fault)
        } else {
            write!(f, "{}: {}", self.location, self.fault)
        }
    }
}

/// All mistakes in a text of configurations. None of its tools can be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", lines(.0))]
pub struct InvalidConfigurations(pub Vec<ConfigurationFault>);

fn lines(faults: &[ConfigurationFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Collects the mistakes of a text.
#[derive(Default)]
pub(super) struct Faults(pub(super) Vec<ConfigurationFault>);

impl Faults {
    pub(super) fn add(&mut self, location: &str, fault: impl Into<String>) {
        self.0.push(ConfigurationFault {
            location: location.trim_start_matches('.').to_owned(),
            fault: fault.into(),
        });
    }

    /// Adds a mistake in the value of a key.
    pub(super) fn add_at<T>(&mut self, location: &str, key: &str, fault: &str) -> Option<T> {
        self.add(&format!("{location}.{key}"), fault);
        None
    }

    /// Returns a required text that is not empty.
    pub(super) fn text<'a>(
        &mut self,
        item: &'a Map<String, Value>,
        key: &str,
        location: &str,
    ) -> Option<&'a str> {
        match item.get(key) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            Some(_) => self.add_at(location, key, "it is not a text"),
            None => self.add_at(location, key, "it is missing"),
        }
    }

    /// Returns an optional `true` or `false`.
    pub(super) fn flag(
        &mut self,
        item: &Map<String, Value>,
        key: &str,
        default: bool,
        location: &str,
    ) -> bool {
        match item.get(key) {
            None => default,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.add(&format!("{location}.{key}"), "it is neither true nor false");
                default
            }
        }
    }

    /// Refuses unknown keys, so that a misspelt one is not ignored.
    pub(super) fn check_keys(&mut self, item: &Map<String, Value>, keys: &[&str], location: &str) {
        for key in item.keys().filter(|key| !keys.contains(&key.as_str())) {
            let fault = match key.as_str() {
                // The page chooses the component by the tool's name.
                "display" => "there is no `display`: the tool's name chooses how it is shown".to_owned(),
                // An HTTP tool always sends the complete arguments.
                "body" => "there is no `body`: POST, PUT and PATCH send the arguments as JSON, GET and DELETE in the query".to_owned(),
                _ => format!("there is no such key; the keys are {}", keys.join(", ")),
            };
            self.add(&format!("{location}.{key}"), fault);
        }
    }
}
