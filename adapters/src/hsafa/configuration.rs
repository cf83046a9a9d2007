//! Tool configurations, in the form of specification 003: `name`, `description`, `inputSchema`, `executionType`, and
//! the options `visible`, `isAsync`, `timeout` and `execution`.

use std::time::Duration;

use portcullis_tools::{ConfiguredTool, ExternalTool, HttpTool, InternalTool};
use portcullis_types::{DEFAULT_TIMEOUT, FunctionDecl, JsonSchema, ToolName};
use serde_json::Value;

use super::{
    execution::{self, ExecutionType, ToolExecution},
    faults::{Faults, InvalidConfigurations},
};

/// The maximum length of the text of tool configurations, in bytes: 1 MiB.
pub const MAX_CONFIGURATION_BYTES: usize = 1 << 20;

/// The maximum timeout in a configuration: 24 hours. The policy may shorten it.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// The keys of a configuration. The required ones come first.
const KEYS: [&str; 8] =
    ["name", "description", "inputSchema", "executionType", "visible", "isAsync", "timeout", "execution"];

/// A valid tool configuration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolConfiguration {
    /// The name, by which a page chooses how it renders a call.
    pub name: ToolName,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the arguments. It describes an object.
    pub input_schema: JsonSchema,
    /// The type, as the configuration states it.
    pub execution_type: ExecutionType,
    /// The action of a call.
    pub execution: ToolExecution,
    /// Whether calls and results are shown in the active space. Default: true, for an internal tool false.
    /// Has no effect without a space.
    pub visible: bool,
    /// Whether a run continues before the result of a call is submitted. Default: false. A request and an
    /// internal tool always return their results immediately.
    pub is_async: bool,
    /// How long a run waits for a submitted result, and the timeout of a request. Default: 30 s.
    pub timeout: Duration,
}

impl ToolConfiguration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// [`InvalidConfigurations`] with all mistakes together.
    pub fn read(value: &Value) -> Result<Self, InvalidConfigurations> {
        let mut faults = Faults::default();
        match read(value, "", &mut faults) {
            Some(configuration) if faults.0.is_empty() => Ok(configuration),
            _ => Err(InvalidConfigurations(faults.0)),
        }
    }

    /// Creates the tool for a registry.
    #[must_use]
    pub fn to_tool(&self) -> ConfiguredTool {
        let decl = FunctionDecl {
            name: self.name.to_string(),
            description: Some(self.description.clone()),
            parameters: self.input_schema.clone(),
        };
        match &self.execution {
            ToolExecution::Http(target) => {
                HttpTool { timeout: self.timeout, ..HttpTool::new(decl, target.clone()) }.into()
            }
            ToolExecution::Pending => {
                ExternalTool { waits: !self.is_async, timeout: self.timeout, ..ExternalTool::new(decl) }
                    .into()
            }
            ToolExecution::Internal => InternalTool::new(decl).into(),
        }
    }
}

/// Reads the configuration of one tool, or of a list of tools. No two names may differ only in the case of
/// letters.
///
/// # Errors
/// [`InvalidConfigurations`] with all mistakes together.
pub fn read_configurations(text: &str) -> Result<Vec<ToolConfiguration>, InvalidConfigurations> {
    let mut faults = Faults::default();
    if text.len() > MAX_CONFIGURATION_BYTES {
        faults.add("", format!("it is longer than {MAX_CONFIGURATION_BYTES} bytes"));
        return Err(InvalidConfigurations(faults.0));
    }
    let tools: Vec<_> = match serde_json::from_str(text) {
        Err(error) => {
            faults.add("", format!("it is not JSON: {error}"));
            Vec::new()
        }
        Ok(Value::Array(items)) => items
            .iter()
            .enumerate()
            .map(|(index, item)| read(item, &format!("[{index}]"), &mut faults))
            .collect(),
        Ok(item) => vec![read(&item, "", &mut faults)],
    };
    let mut names: Vec<&ToolName> = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let Some(ToolConfiguration { name, .. }) = tool else { continue };
        let location = format!("[{index}].name");
        match names.iter().find(|other| other.is_same_but_for_case(name)) {
            Some(other) if *other == name => faults.add(&location, format!("two tools are named `{name}`")),
            Some(other) => {
                faults.add(&location, format!("`{name}` and `{other}` differ only in upper and lower case"));
            }
            None => {}
        }
        names.push(name);
    }
    if faults.0.is_empty() {
        Ok(tools.into_iter().flatten().collect())
    } else {
        Err(InvalidConfigurations(faults.0))
    }
}

/// Reads a configuration. Returns `None` if a required part is missing or has a mistake. Adds all mistakes to
/// `faults`.
fn read(item: &Value, location: &str, faults: &mut Faults) -> Option<ToolConfiguration> {
    let Some(item) = item.as_object() else {
        faults.add(location, "a tool configuration is a JSON object");
        return None;
    };
    faults.check_keys(item, &KEYS, location);
    let name = faults.text(item, "name", location).and_then(|name| {
        let parsed = ToolName::parse(name);
        parsed
            .map_err(|error| faults.add(&format!("{location}.name"), portcullis_types::error_chain(&error)))
            .ok()
    });
    let description = faults.text(item, "description", location);
    let schema = match item.get("inputSchema") {
        Some(schema @ Value::Object(_)) => Some(JsonSchema::new(schema.clone())),
        Some(_) => faults.add_at(location, "inputSchema", "it is not a JSON Schema of an object"),
        None => faults.add_at(location, "inputSchema", "it is missing"),
    };
    let execution = execution::read(item, location, faults);
    let is_internal = matches!(execution, Some((ExecutionType::Internal, _)));
    let visible = faults.flag(item, "visible", !is_internal, location);
    let is_async = faults.flag(item, "isAsync", false, location);
    let timeout = match item.get("timeout").map(|timeout| timeout.as_u64().map(Duration::from_millis)) {
        None => DEFAULT_TIMEOUT,
        Some(Some(timeout)) if !timeout.is_zero() && timeout <= MAX_TIMEOUT => timeout,
        Some(_) => {
            let most = MAX_TIMEOUT.as_millis();
            faults.add(
                &format!("{location}.timeout"),
                format!("it is not a whole number of milliseconds from 1 to {most}"),
            );
            DEFAULT_TIMEOUT
        }
    };
    // Return only after all parts are read, so that all mistakes are reported together.
    let (execution_type, execution) = execution?;
    Some(ToolConfiguration {
        name: name?,
        description: description?.to_owned(),
        input_schema: schema?,
        execution_type,
        execution,
        visible,
        is_async,
        timeout,
    })
}

#[cfg(test)]
mod tests {
    use portcullis_tools::policy::{LoadOptions, PolicySource, WorkspaceSecurityPolicy};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn confirm() -> Value {
        json!({
            "name": "confirmAction",
            "description": "Asks a person to confirm.",
            "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
            "executionType": "space",
        })
    }

    fn with(key: &str, value: Value) -> Value {
        let mut item = confirm();
        item[key] = value;
        item
    }

    /// Returns a configuration of this type with this execution.
    fn of_type(kind: &str, execution: Value) -> Value {
        let mut item = with("executionType", json!(kind));
        if !execution.is_null() {
            item["execution"] = execution;
        }
        item
    }

    fn locations(text: &str) -> Vec<String> {
        let InvalidConfigurations(faults) = read_configurations(text).expect_err(text);
        faults.into_iter().map(|fault| fault.location).collect()
    }

    fn read_one(item: &Value) -> ToolConfiguration {
        ToolConfiguration::read(item).unwrap_or_else(|error| panic!("{item}: {error}"))
    }

    #[test]
    fn a_configuration_has_the_defaults_of_the_specification() {
        let tool = read_one(&confirm());
        assert_eq!((tool.name.as_str(), tool.execution_type), ("confirmAction", ExecutionType::Space));
        assert_eq!((tool.visible, tool.is_async, tool.timeout), (true, false, Duration::from_millis(30_000)));
        let ConfiguredTool::External(external) = tool.to_tool() else { panic!("{tool:?}") };
        assert!(external.waits && external.timeout == tool.timeout && external.decl.name == "confirmAction");
        assert_eq!(read_configurations(&confirm().to_string()).expect("one tool"), [tool]);
    }

    #[test]
    fn all_examples_of_the_specification_are_read() {
        let list = json!([
            {
                "name": "fetchWeather", "description": "d", "inputSchema": {"type": "object"},
                "executionType": "gateway", "visible": true,
                "execution": {"url": "https://api.weather.com/current", "method": "GET"},
            },
            {
                "name": "fetchExternalData", "description": "d", "inputSchema": {"type": "object"},
                "executionType": "external", "visible": false, "isAsync": false, "timeout": 10000,
            },
            {
                "name": "confirmAction", "description": "d", "inputSchema": {"type": "object"},
                "executionType": "space", "visible": true, "isAsync": true,
            },
            {
                "name": "displayChart", "description": "d", "inputSchema": {"type": "object"},
                "executionType": "internal", "visible": true,
            },
        ]);
        let tools = read_configurations(&list.to_string()).expect("reads");
        let visible: Vec<bool> = tools.iter().map(|tool| tool.visible).collect();
        assert_eq!(visible, [true, false, true, true]);
        let configured: Vec<ConfiguredTool> = tools.iter().map(ToolConfiguration::to_tool).collect();
        let [
            ConfiguredTool::Http(weather),
            ConfiguredTool::External(data),
            ConfiguredTool::External(confirm),
            ConfiguredTool::Internal(chart),
        ] = &configured[..]
        else {
            panic!("{configured:?}");
        };
        assert_eq!(weather.target.url(), "https://api.weather.com/current");
        assert_eq!((data.waits, data.timeout), (true, Duration::from_secs(10)));
        assert!(!confirm.waits && chart.decl.name == "displayChart");
    }

    #[test]
    fn only_an_internal_tool_is_invisible_by_default() {
        let http = json!({"url": "https://a.example/"});
        for (kind, execution, visible) in [
            ("gateway", http, true),
            ("external", Value::Null, true),
            ("space", Value::Null, true),
            ("internal", Value::Null, false),
        ] {
            assert_eq!(read_one(&of_type(kind, execution)).visible, visible, "{kind}");
        }
    }

    #[test]
    fn a_url_makes_a_request_of_any_tool_but_an_internal_one() {
        let http = json!({"url": "https://a.example/x#y", "method": "post", "headers": {"X-A": "1"}});
        for kind in ["gateway", "external", "space"] {
            let mut item = of_type(kind, http.clone());
            item["isAsync"] = json!(true);
            let tool = read_one(&item);
            assert!(matches!(tool.to_tool(), ConfiguredTool::Http(_)), "{kind}");
            assert!(tool.is_async, "as it is written");
        }
        assert_eq!(locations(&of_type("internal", http).to_string()), ["execution"]);
        assert_eq!(locations(&of_type("gateway", Value::Null).to_string()), ["execution.url"]);
        assert_eq!(locations(&of_type("external", json!({})).to_string()), ["execution.url"]);
    }

    #[test]
    fn all_mistakes_are_reported_together() {
        let list = json!([
            with("timeout", json!(0)),
            {"name": "a b", "executionType": "cloud", "visible": 1, "display": {"customUI": "x"}},
            confirm(),
            confirm(),
            with("name", json!("confirmaction")),
        ]);
        assert_eq!(
            locations(&list.to_string()),
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
                "[4].name",
            ]
        );
    }

    #[test]
    fn each_mistake_is_reported_with_its_location() {
        let gateway = |execution: Value| of_type("gateway", execution);
        for (item, location) in [
            (with("executionType", json!("gateway")), "execution.url"),
            (with("executionType", json!("Space")), "executionType"),
            (with("execution", json!("https://a.example")), "execution"),
            (with("inputSchema", json!("object")), "inputSchema"),
            (with("timeout", json!(1.5)), "timeout"),
            (with("timeout", json!(-1)), "timeout"),
            (with("timeout", json!(86_400_001)), "timeout"),
            (with("name", json!("")), "name"),
            (gateway(json!({"url": "ftp://a.example"})), "execution.url"),
            (gateway(json!({"url": "https://u:p@a.example"})), "execution.url"),
            (gateway(json!({"url": 5})), "execution.url"),
            (gateway(json!({"url": "https://a.example", "method": "TRACE"})), "execution.method"),
            (gateway(json!({"url": "https://a.example", "body": "x"})), "execution.body"),
            (gateway(json!({"url": "https://a.example", "headers": []})), "execution.headers"),
            (gateway(json!({"url": "https://a.example", "headers": {"X": 1}})), "execution.headers.X"),
            (
                gateway(json!({"url": "https://a.example", "headers": {"Host": "b"}})),
                "execution.headers.Host",
            ),
            (
                gateway(json!({"url": "https://a.example", "headers": {"X": "a\r\nY: b"}})),
                "execution.headers.X",
            ),
            (json!("x"), ""),
        ] {
            assert_eq!(locations(&item.to_string()), [location], "{item}");
        }
        assert_eq!(locations("{"), [""]);
        assert_eq!(locations(&" ".repeat(MAX_CONFIGURATION_BYTES + 1)), [""]);
    }

    /// Returns the first block of this language after a heading of a manual.
    fn block<'m>(manual: &'m str, heading: &str, language: &str) -> &'m str {
        let (_, section) = manual.split_once(&format!("\n## {heading}\n")).expect("a section");
        let (_, block) = section.split_once(&format!("```{language}\n")).expect("a block");
        block.split_once("```").expect("its end").0
    }

    #[test]
    fn the_manuals_examples_are_configurations_and_a_policy() {
        let network = include_str!("../../../docs/network.md");
        let tools = read_configurations(block(network, "A tool without code", "json")).expect("reads");
        assert!(matches!(&tools[0].execution, ToolExecution::Http(_)));
        let text = format!("version = 1\n{}", block(network, "A tool without code", "toml"));
        let options = LoadOptions {
            operator: PolicySource { name: "manual", text: &text },
            overlay: None,
            sandbox_tier: portcullis_types::SandboxTier::Process,
        };
        let policy = WorkspaceSecurityPolicy::load(&options).expect("loads");
        assert!(policy.judge_configured_url("https://api.weather.example/current").is_ok());
        let durable = include_str!("../../../docs/durable.md");
        let tools = read_configurations(block(durable, "Results from outside", "json")).expect("reads");
        assert_eq!(tools[0].execution, ToolExecution::Pending);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = read_configurations(&text);
        }

        #[test]
        fn a_value_of_any_kind_in_any_key_is_read_or_refused(
            key in 0..KEYS.len(),
            of_execution in prop::sample::select(vec!["url", "method", "headers", "body"]),
            value in prop_oneof![
                Just(json!(null)), Just(json!(true)), any::<i64>().prop_map(|n| json!(n)),
                ".{0,20}".prop_map(|t| json!(t)), Just(json!([])), Just(json!({})), ".{0,9}".prop_map(|t| json!({t: "x"})),
            ],
        ) {
            let _ = read_configurations(&with(KEYS[key], value.clone()).to_string());
            let mut execution = json!({"url": "https://a.example/"});
            execution[of_execution] = value;
            let _ = read_configurations(&of_type("gateway", execution).to_string());
        }
    }
}
