//! Checks a module's answer to `describe`. The answer is untrusted text that every model and client
//! receives, and it stays in memory as long as the process runs. Each part of it is therefore bounded.

use portcullis_types::{
    Declarations, FRAME_VERSION, JsonSchema, ToolDeclaration, ToolMeta, ToolName, json_bytes,
};

use super::{WasmError, module::escape_truncated};

/// The maximum number of a module's tools: 256. Each tool costs a schema, and a line in every listing.
const MAX_TOOLS_PER_MODULE: usize = 256;

/// The maximum size of a module's whole answer: 1 MiB. A folder can hold 256 modules.
const MAX_DECLARATIONS_BYTES: usize = 1 << 20;

/// The maximum length of a tool's description: 4 KiB. A model reads it with each question.
const MAX_DESCRIPTION_BYTES: usize = 4 << 10;

/// The maximum size of each schema of a tool, for arguments and for results, including all text in the schema: 64 KiB.
/// A model reads the schema of the arguments with each question.
const MAX_TOOL_SCHEMA_BYTES: usize = 64 << 10;

/// The maximum length of each tool name, label, profile, alias, host and argument name: 256 bytes.
const MAX_WORD_BYTES: usize = 256;

/// The maximum length of the reason for the refusal of an answer, in characters.
const MAX_REASON_CHARS: usize = 1024;

/// The maximum number of a tool's roles, of its hosts and of its aliases: 64.
const MAX_LISTED: usize = 64;

/// Checks a module's answer to `describe`: its version, names and limits, and that each role belongs to an
/// argument of the schema.
pub(super) fn check(text: &str) -> Result<Declarations, WasmError> {
    // The reason can quote any name of the module, so it is truncated.
    let refuse =
        |reason: String| WasmError::Describe { reason: reason.chars().take(MAX_REASON_CHARS).collect() };
    if text.trim().is_empty() {
        return Err(refuse(
            "it returned no declarations; a module that uses the SDK must end with `export_tools!`"
                .to_owned(),
        ));
    }
    if text.len() > MAX_DECLARATIONS_BYTES {
        return Err(WasmError::Declares {
            part: "its answer to `describe`".to_owned(),
            size: text.len(),
            limit: MAX_DECLARATIONS_BYTES,
        });
    }
    let declarations: Declarations =
        serde_json::from_str(text).map_err(|error| match text.trim_start().starts_with('{') {
            true => refuse(error.to_string()),
            false => refuse(format!("{error}; {}", super::fault::STDOUT_ADVICE)),
        })?;
    if declarations.v != FRAME_VERSION {
        return Err(refuse(format!("it speaks version {}, not {FRAME_VERSION}", declarations.v)));
    }
    if declarations.tools.is_empty() {
        return Err(refuse("it has no tools".to_owned()));
    }
    if declarations.tools.len() > MAX_TOOLS_PER_MODULE {
        return Err(refuse(format!("it has more than {MAX_TOOLS_PER_MODULE} tools")));
    }
    for tool in &declarations.tools {
        ensure_bounded(tool)?;
        ToolName::parse(tool.name.as_str()).map_err(|error| refuse(error.to_string()))?;
        let properties = tool.parameters.as_value().get("properties");
        for role in &tool.roles {
            if properties.is_none_or(|properties| properties.get(&role.argument).is_none()) {
                return Err(refuse(format!(
                    "tool `{}` gives a role to `{}`, which is not a parameter of it",
                    tool.name, role.argument
                )));
            }
        }
    }
    Ok(declarations)
}

/// Refuses a tool with a part that exceeds its limit. The destructuring names every field, including the author's
/// hints, so that a new field is not forgotten.
fn ensure_bounded(tool: &ToolDeclaration) -> Result<(), WasmError> {
    let ToolDeclaration {
        name,
        label,
        description,
        parameters,
        output_schema,
        tier: _,
        policy: _,
        timeout_ms: _,
        roles,
        profile,
        hosts,
        meta: ToolMeta { aliases, idempotent: _, hidden: _, output_cap_bytes: _ },
    } = tool;
    let ensure_at_most = |limit: usize, size: usize, part: &str| {
        if size > limit {
            let part = format!("{part} of its tool `{}`", escape_truncated(name));
            Err(WasmError::Declares { part, size, limit })
        } else {
            Ok(())
        }
    };
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let schema = |schema: &JsonSchema| json_bytes(schema.as_value());
    ensure_at_most(MAX_WORD_BYTES, name.len(), "the name")?;
    ensure_at_most(MAX_WORD_BYTES, text(label), "the label")?;
    ensure_at_most(MAX_WORD_BYTES, text(profile), "the profile")?;
    ensure_at_most(MAX_DESCRIPTION_BYTES, text(description), "the description")?;
    ensure_at_most(MAX_TOOL_SCHEMA_BYTES, schema(parameters), "the schema of the arguments")?;
    ensure_at_most(
        MAX_TOOL_SCHEMA_BYTES,
        output_schema.as_ref().map_or(0, schema),
        "the schema of the results",
    )?;
    for (count, part) in [
        (roles.len(), "the number of roles"),
        (hosts.len(), "the number of hosts"),
        (aliases.len(), "the number of aliases"),
    ] {
        ensure_at_most(MAX_LISTED, count, part)?;
    }
    // Only the longest word is checked, because the message names no single word.
    let words = hosts.iter().chain(aliases).chain(roles.iter().map(|role| &role.argument));
    ensure_at_most(
        MAX_WORD_BYTES,
        words.map(String::len).max().unwrap_or(0),
        "a host, an alias or an argument's name",
    )
}

#[cfg(test)]
mod tests {
    use portcullis_types::ArgumentRole;
    use serde_json::{Value, json};

    use super::*;

    fn tool() -> Value {
        json!({"name": "t", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}})
    }

    /// Checks the answer of a module whose only tool also has this field.
    #[track_caller]
    fn check_with(key: &str, value: Value) -> Result<Declarations, WasmError> {
        let mut tool = tool();
        tool[key] = value;
        check(&json!({"v": FRAME_VERSION, "tools": [tool]}).to_string())
    }

    #[test]
    fn each_text_of_a_tool_has_a_bound_and_the_error_names_it() {
        let schema = |bytes: usize| json!({"type": "object", "description": "x".repeat(bytes)});
        let example = |bytes: usize| {
            let long = "x".repeat(bytes);
            json!({"type": "object", "properties": {"a": {"type": "string", "examples": [long]}}})
        };
        let words = |length: usize| json!(["x".repeat(length)]);
        for (key, accepted, rejected, part) in [
            ("description", json!("x".repeat(4096)), json!("x".repeat(4097)), "the description"),
            ("label", json!("x".repeat(256)), json!("x".repeat(257)), "the label"),
            ("profile", json!("x".repeat(256)), json!("x".repeat(257)), "the profile"),
            ("parameters", schema(65_000), schema(65_537), "the schema of the arguments"),
            ("parameters", example(65_000), example(65_537), "the schema of the arguments"),
            ("output_schema", schema(65_000), schema(65_537), "the schema of the results"),
            ("hosts", words(256), words(257), "a host"),
            ("hosts", json!(vec!["x"; 64]), json!(vec!["x"; 65]), "the number of hosts"),
            ("meta", json!({"aliases": words(256)}), json!({"aliases": words(257)}), "an alias"),
        ] {
            assert!(check_with(key, accepted).is_ok(), "{part}");
            match check_with(key, rejected) {
                Err(error @ WasmError::Declares { .. }) => {
                    let message = error.to_string();
                    assert!(
                        message.contains(part) && message.contains("`t`") && message.len() < 300,
                        "{message}"
                    );
                }
                other => panic!("{part}: {other:?}"),
            }
        }
        let role = ArgumentRole::path("a", portcullis_types::Access::Read);
        assert!(check_with("name", json!("x".repeat(100_000))).unwrap_err().to_string().len() < 300);
        assert!(check_with("roles", json!(vec![role; 65])).is_err());
    }

    #[test]
    fn all_tools_together_have_a_bound() {
        let tools: Vec<Value> = (0..256)
            .map(|number| {
                let mut tool = tool();
                tool["name"] = json!(format!("t{number}"));
                tool["description"] = json!("x".repeat(4096));
                tool
            })
            .collect();
        let text = json!({"v": FRAME_VERSION, "tools": tools}).to_string();
        assert!(matches!(check(&text), Err(WasmError::Declares { .. })));
    }
}
