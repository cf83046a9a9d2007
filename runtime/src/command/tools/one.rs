//! `portcullis tools NAME`: describes one tool with its arguments.

use std::fmt::Write as _;

use portcullis_tools::{RegisteredTool, ToolRegistry};
use serde_json::{Map, Value};

use super::{describe_profile, describe_step_profiles, request_of};
use crate::output::{table, text};

/// Describes the tool for people: its purpose, its arguments, and its grant.
pub(super) fn describe(registry: &ToolRegistry, tool: &RegisteredTool) -> String {
    let assigned = registry.policy().describe(tool.descriptor());
    let mut out = format!("{}\n", text::inline(&tool.decl().name));
    let mut add_line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {name:<12} {}", text::inline(value));
    };
    add_line("tier", assigned.tier.as_str());
    add_line(
        "profile",
        &match tool.steps() {
            [] => describe_profile(registry, &assigned.profile),
            steps => describe_step_profiles(registry, steps),
        },
    );
    if let Some(request) = request_of(tool) {
        add_line("request", &request);
    }
    let approval = match (registry.assignment(tool), registry.unavailable_reason(tool)) {
        (_, Some(reason)) => format!("unavailable: {reason}"),
        (Ok(assigned), None) => assigned.approval.to_string(),
        (Err(denial), None) => format!("disabled: {}", denial.message()),
    };
    add_line("approval", &approval);
    add_line("confinement", tool.confinement().as_str());
    add_line("timeout", &humantime::format_duration(assigned.timeout).to_string());
    if let Some(description) = &tool.decl().description {
        let _ = writeln!(out, "\n{}", text::for_terminal(description));
    }
    let parameters = tool.decl().parameters.as_value();
    let arguments = parameters.get("properties").and_then(Value::as_object);
    match arguments.filter(|arguments| !arguments.is_empty()) {
        None => out.push_str("\nIt takes no arguments.\n"),
        Some(arguments) => {
            out.push('\n');
            out.push_str(&argument_table(arguments, parameters));
        }
    }
    out
}

fn argument_table(arguments: &Map<String, Value>, parameters: &Value) -> String {
    let required: Vec<&str> = parameters
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let rows = arguments.iter().map(|(name, schema)| {
        let absent = match schema.get("default") {
            _ if required.contains(&name.as_str()) => "required".to_owned(),
            Some(default) => default.to_string(),
            None => "optional".to_owned(),
        };
        let meaning = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        [name.clone(), type_in_words(schema), absent, meaning.to_owned()]
    });
    table::render(["ARGUMENT", "TYPE", "WHEN ABSENT", "MEANING"], rows)
}

/// Describes the type of a schema in a few words. The whole schema is in `portcullis tools --json`.
fn type_in_words(schema: &Value) -> String {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        return choices.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    }
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "array" => {
            let items = schema.get("items").map_or_else(|| "any value".to_owned(), self::type_in_words);
            format!("array of {items}")
        }
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "see --json".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_testing::registries::registry;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_shown_with_its_arguments() {
        let (_state, registry) = registry("[tools.add]\napproval = \"ask\"\n");
        let shown = describe(&registry, &registry.get("add").expect("shipped"));
        for part in ["add\n", "  approval     ask\n", "ARGUMENT", "number", "required"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let time = describe(&registry, &registry.get("get_current_time").expect("shipped"));
        assert!(time.contains("TYPE") || time.contains("It takes no arguments."), "{time}");
    }

    #[test]
    fn a_type_is_said_in_a_few_words() {
        for (schema, words) in [
            (json!({"type": "string"}), "string"),
            (json!({"type": ["string", "null"]}), "string or null"),
            (json!({"enum": ["a", 1]}), "\"a\" or 1"),
            (json!({"type": "array", "items": {"type": "integer"}}), "array of integer"),
            (json!({"type": "array"}), "array of any value"),
            (json!({"anyOf": []}), "see --json"),
            (json!(true), "see --json"),
        ] {
            assert_eq!(type_in_words(&schema), words);
        }
    }
}
