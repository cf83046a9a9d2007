//! Tool configurations, in the form of specification 003: `name`, `description`, `inputSchema`, `executionType`, and
//! the options `visible`, `isAsync` and `timeout`.

use std::{fmt, time::Duration};

use portcullis_tools::ExternalTool;
use portcullis_types::{DEFAULT_TIMEOUT, FunctionDecl, JsonSchema, ToolName};
use serde_json::{Map, Value};
use thiserror::Error;

/// The longest file of tool configurations, in bytes: 1 MiB.
pub const MAX_CONFIGURATION_BYTES: usize = 1 << 20;

/// The longest time that a run waits for a result: 24 hours. The policy may shorten it.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// The keys of a configuration, required ones first.
const KEYS: [&str; 8] =
    ["name", "description", "inputSchema", "executionType", "visible", "isAsync", "timeout", "execution"];

/// The words of `executionType`.
const EXECUTION_TYPES: [&str; 4] = ["gateway", "external", "space", "internal"];

/// The only execution type that is run here.
const EXTERNAL: &str = "external";

/// One mistake in a text of configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationFault {
    /// The place: a path in the JSON, such as `[1].timeout`. Empty for the text as a whole.
    pub place: String,
    /// The mistake, and the remedy.
    pub fault: String,
}

impl fmt::Display for ConfigurationFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            f.write_str(&self.fault)
        } else {
            write!(f, "{}: {}", self.place, self.fault)
        }
    }
}

/// All mistakes of a text of configurations. None of its tools is usable.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", lines(.0))]
pub struct InvalidConfigurations(pub Vec<ConfigurationFault>);

fn lines(faults: &[ConfigurationFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Reads the configuration of one tool, or a list of them.
///
/// The defaults are those of the specification: `isAsync` is false, so that the run waits for the result, and
/// `timeout` is 30,000 ms. `visible` says whether a space shows the call; without a space it changes nothing.
///
/// # Errors
/// [`InvalidConfigurations`] with all mistakes at once.
pub fn read_configurations(text: &str) -> Result<Vec<ExternalTool>, InvalidConfigurations> {
    let mut faults = Faults::default();
    if text.len() > MAX_CONFIGURATION_BYTES {
        faults.add("", format!("it is longer than {MAX_CONFIGURATION_BYTES} bytes"));
        return Err(InvalidConfigurations(faults.0));
    }
    let tools: Vec<_> = match serde_json::from_str(text) {
        Err(error) => {
            faults.add("", format!("it is no JSON: {error}"));
            Vec::new()
        }
        Ok(Value::Array(items)) => items
            .into_iter()
            .enumerate()
            .map(|(index, item)| read(&item, &format!("[{index}]"), &mut faults))
            .collect(),
        Ok(item) => vec![read(&item, "", &mut faults)],
    };
    let mut names: Vec<&str> = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let Some(tool) = tool else { continue };
        if names.contains(&tool.decl.name.as_str()) {
            faults.add(&format!("[{index}].name"), format!("two tools are named `{}`", tool.decl.name));
        }
        names.push(&tool.decl.name);
    }
    if faults.0.is_empty() {
        Ok(tools.into_iter().flatten().collect())
    } else {
        Err(InvalidConfigurations(faults.0))
    }
}

#[derive(Default)]
struct Faults(Vec<ConfigurationFault>);

impl Faults {
    fn add(&mut self, place: &str, fault: impl Into<String>) {
        self.0.push(ConfigurationFault {
            place: place.trim_start_matches('.').to_owned(),
            fault: fault.into(),
        });
    }
}

/// None if the configuration has a mistake.
fn read(item: &Value, place: &str, faults: &mut Faults) -> Option<ExternalTool> {
    let Some(item) = item.as_object() else {
        faults.add(place, "a tool configuration is a JSON object");
        return None;
    };
    for key in item.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        let fault = match key.as_str() {
            // The page chooses the component by the tool's name.
            "display" => "there is no `display`: the tool's name chooses how it is shown".to_owned(),
            _ => format!("there is no such key; the keys are {}", KEYS.join(", ")),
        };
        faults.add(&format!("{place}.{key}"), fault);
    }
    let name = text(item, "name", place, faults);
    if let Some(Err(error)) = name.map(ToolName::parse) {
        faults.add(&format!("{place}.name"), portcullis_types::chain(&error));
    }
    let description = text(item, "description", place, faults);
    let schema = match item.get("inputSchema") {
        Some(schema @ Value::Object(_)) => Some(JsonSchema::new(schema.clone())),
        Some(_) => fault(faults, place, "inputSchema", "it is not a JSON Schema of an object"),
        None => fault(faults, place, "inputSchema", "it is missing"),
    };
    let execution = text(item, "executionType", place, faults);
    match execution {
        Some(EXTERNAL) | None => {}
        Some(word) if EXECUTION_TYPES.contains(&word) => {
            faults.add(
                &format!("{place}.executionType"),
                format!(
                    "`{word}` is not run here; the results of an `{EXTERNAL}` tool are submitted from outside"
                ),
            );
        }
        Some(word) => {
            let known = EXECUTION_TYPES.join(", ");
            faults.add(
                &format!("{place}.executionType"),
                format!("`{}` is none of {known}", word.escape_default()),
            );
        }
    }
    if item.contains_key("execution") && execution == Some(EXTERNAL) {
        faults.add(&format!("{place}.execution"), "an external tool has none: nothing is requested for it");
    }
    flag(item, "visible", true, place, faults);
    let is_async = flag(item, "isAsync", false, place, faults);
    let timeout = match item.get("timeout").map(|timeout| timeout.as_u64().map(Duration::from_millis)) {
        None => DEFAULT_TIMEOUT,
        Some(Some(timeout)) if !timeout.is_zero() && timeout <= MAX_TIMEOUT => timeout,
        Some(_) => {
            let most = MAX_TIMEOUT.as_millis();
            faults.add(
                &format!("{place}.timeout"),
                format!("it is no whole number of milliseconds from 1 to {most}"),
            );
            DEFAULT_TIMEOUT
        }
    };
    let decl = FunctionDecl {
        name: name?.to_owned(),
        description: Some(description?.to_owned()),
        parameters: schema?,
    };
    Some(ExternalTool { waits: !is_async, timeout, ..ExternalTool::new(decl) })
}

fn fault<T>(faults: &mut Faults, place: &str, key: &str, fault: &str) -> Option<T> {
    faults.add(&format!("{place}.{key}"), fault);
    None
}

fn text<'a>(item: &'a Map<String, Value>, key: &str, place: &str, faults: &mut Faults) -> Option<&'a str> {
    match item.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Some(text),
        Some(_) => fault(faults, place, key, "it is not a text"),
        None => fault(faults, place, key, "it is missing"),
    }
}

fn flag(item: &Map<String, Value>, key: &str, default: bool, place: &str, faults: &mut Faults) -> bool {
    match item.get(key) {
        None => default,
        Some(Value::Bool(flag)) => *flag,
        Some(_) => {
            faults.add(&format!("{place}.{key}"), "it is neither true nor false");
            default
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn confirm() -> Value {
        json!({
            "name": "confirm_action",
            "description": "Asks a person to confirm.",
            "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
            "executionType": "external",
        })
    }

    fn with(key: &str, value: Value) -> Value {
        let mut item = confirm();
        item[key] = value;
        item
    }

    fn places(text: &str) -> Vec<String> {
        let InvalidConfigurations(faults) = read_configurations(text).expect_err("has mistakes");
        faults.into_iter().map(|fault| fault.place).collect()
    }

    #[test]
    fn a_configuration_has_the_defaults_of_the_specification() {
        let [tool] = &read_configurations(&confirm().to_string()).expect("reads")[..] else {
            panic!("one tool")
        };
        assert_eq!(tool.decl.name, "confirm_action");
        assert!(tool.waits);
        assert_eq!(tool.timeout, Duration::from_millis(30_000));
    }

    #[test]
    fn an_asynchronous_tool_does_not_wait() {
        let list = json!([with("isAsync", json!(true)), with("name", json!("b"))]);
        let tools = read_configurations(&list.to_string()).expect("reads");
        assert_eq!(tools.iter().map(|tool| tool.waits).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let list = json!([
            with("timeout", json!(0)),
            {"name": "a b", "executionType": "cloud", "visible": 1, "display": {"customUI": "x"}},
            confirm(),
            confirm(),
        ]);
        assert_eq!(
            places(&list.to_string()),
            [
                "[0].timeout",
                "[1].display",
                "[1].name",
                "[1].description",
                "[1].inputSchema",
                "[1].executionType",
                "[1].visible",
                "[2].name",
                "[3].name",
            ]
        );
    }

    #[test]
    fn each_mistake_is_told_with_its_place() {
        for (item, place) in [
            (with("executionType", json!("gateway")), "executionType"),
            (with("execution", json!({"url": "https://example.com"})), "execution"),
            (with("inputSchema", json!("object")), "inputSchema"),
            (with("timeout", json!(1.5)), "timeout"),
            (with("timeout", json!(86_400_001)), "timeout"),
            (with("name", json!("")), "name"),
            (json!("x"), ""),
        ] {
            assert_eq!(places(&item.to_string()), [place], "{item}");
        }
        assert_eq!(places("{"), [""]);
        assert_eq!(places(&" ".repeat(MAX_CONFIGURATION_BYTES + 1)), [""]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = read_configurations(&text);
        }

        #[test]
        fn a_value_of_any_kind_in_any_key_is_read_or_refused(key in 0..KEYS.len(), value in prop_oneof![
            Just(json!(null)), Just(json!(true)), any::<i64>().prop_map(|n| json!(n)), ".{0,20}".prop_map(|t| json!(t)),
            Just(json!([])), Just(json!({})),
        ]) {
            let _ = read_configurations(&with(KEYS[key], value).to_string());
        }
    }
}
