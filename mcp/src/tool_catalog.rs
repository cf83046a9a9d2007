//! Converts a registry's tools into the form of a client's interface.

use portcullis_tools::{RegisteredTool, ToolRegistry, audit::Confinement, policy::ToolOrigin};
use portcullis_types::{DialectError, FunctionDecl, JsonSchema, SafetyTier, SchemaDialect};
use serde_json::{Map, Value, json};

/// A client interface that accepts tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolListFormat {
    /// The `tools` of OpenAI's chat completions, which accept any schema.
    OpenAi,
    /// The `tools` of OpenAI's chat completions in strict mode: the model's arguments must follow the schema.
    OpenAiStrict,
    /// The `tools` of Anthropic's messages, in strict mode.
    Anthropic,
    /// The `tools` of Gemini's `generateContent`.
    Gemini,
    /// The result of the Model Context Protocol's `tools/list`, revision 2025-06-18.
    Mcp,
}

/// The tools for a client, with remarks for the operator.
#[derive(Debug)]
pub struct OfferedTools {
    /// The tools, in order of name.
    pub tools: Vec<Value>,
    /// Tools that are omitted, or offered without strict mode, with the reason.
    pub remarks: Vec<String>,
}

impl ToolListFormat {
    /// Returns the part of this client's request that offers tools.
    #[must_use]
    pub fn request(self, tools: Vec<Value>) -> Value {
        match self {
            Self::OpenAi | Self::OpenAiStrict | Self::Anthropic => Value::Array(tools),
            Self::Gemini => json!([{ "functionDeclarations": tools }]),
            Self::Mcp => json!({ "tools": tools }),
        }
    }

    /// Returns all tools for this client, as a list.
    #[must_use]
    pub fn tools(self, registry: &ToolRegistry) -> OfferedTools {
        let mut remarks = Vec::new();
        let mut tools = Vec::new();
        for tool in &registry.offered() {
            let name = &tool.decl().name;
            match self.tool(registry, tool) {
                Ok(declaration) => tools.push(declaration),
                Err(error) => match self.non_strict(tool) {
                    Some(declaration) => {
                        remarks.push(format!("`{name}` is not in strict mode: {error}"));
                        tools.push(declaration);
                    }
                    None => remarks.push(format!("`{name}` is left out: {error}")),
                },
            }
        }
        OfferedTools { tools, remarks }
    }

    fn tool(self, registry: &ToolRegistry, tool: &RegisteredTool) -> Result<Value, DialectError> {
        let parameters = &tool.decl().parameters;
        Ok(match self {
            Self::OpenAi => openai(tool, parameters, None),
            Self::OpenAiStrict => openai(tool, &SchemaDialect::OpenAiStrict.render(parameters)?, Some(true)),
            Self::Anthropic => anthropic(tool, &SchemaDialect::Anthropic.render(parameters)?, true),
            Self::Gemini => gemini(tool, &SchemaDialect::Gemini.render(parameters)?),
            Self::Mcp => mcp(registry, tool, &SchemaDialect::Mcp.render(parameters)?),
        })
    }

    /// Returns a tool without strict mode, for a schema that strict mode cannot express, or `None` if the
    /// client has only one mode.
    fn non_strict(self, tool: &RegisteredTool) -> Option<Value> {
        let parameters = &tool.decl().parameters;
        match self {
            Self::OpenAi | Self::OpenAiStrict => Some(openai(tool, parameters, Some(false))),
            Self::Anthropic => Some(anthropic(tool, parameters, false)),
            Self::Gemini | Self::Mcp => None,
        }
    }
}

fn openai(tool: &RegisteredTool, parameters: &JsonSchema, strict: Option<bool>) -> Value {
    let mut function = common_fields(tool, "parameters", parameters);
    function.extend(strict.map(|strict| ("strict".to_owned(), strict.into())));
    json!({ "type": "function", "function": function })
}

fn anthropic(tool: &RegisteredTool, parameters: &JsonSchema, strict: bool) -> Value {
    let mut declaration = common_fields(tool, "input_schema", parameters);
    declaration.insert("strict".to_owned(), strict.into());
    declaration.into()
}

fn gemini(tool: &RegisteredTool, parameters: &JsonSchema) -> Value {
    common_fields(tool, "parameters", parameters).into()
}

fn mcp(registry: &ToolRegistry, tool: &RegisteredTool, parameters: &JsonSchema) -> Value {
    let mut declaration = common_fields(tool, "inputSchema", parameters);
    declaration.extend(tool.label().map(|label| ("title".to_owned(), label.into())));
    declaration
        .extend(tool.output_schema().map(|schema| ("outputSchema".to_owned(), schema.as_value().clone())));
    let is_read_only = registry.policy().describe(tool.descriptor()).tier == SafetyTier::ReadOnly;
    let annotations = json!({
        "readOnlyHint": is_read_only,
        "destructiveHint": !is_read_only,
        "idempotentHint": is_read_only || tool.meta().idempotent,
        "openWorldHint": reaches_out(tool),
    });
    declaration.insert("annotations".to_owned(), annotations);
    declaration.into()
}

/// Returns whether a tool may reach beyond the mounts (`openWorldHint`). A guest has no network, but the
/// host makes requests for a tool whose module declares hosts. A command may have a network. The arguments of
/// an external tool leave this host. An embedder's native tool is not confined.
fn reaches_out(tool: &RegisteredTool) -> bool {
    match tool.confinement() {
        Confinement::Wasm => tool.declares_hosts(),
        Confinement::Egress | Confinement::Shell | Confinement::External => true,
        Confinement::Internal => false,
        Confinement::Native => tool.descriptor().origin == ToolOrigin::Native,
    }
}

/// Returns the fields that every interface has: name, description, and the arguments' schema under the given
/// key.
fn common_fields(tool: &RegisteredTool, key: &str, parameters: &JsonSchema) -> Map<String, Value> {
    let FunctionDecl { name, description, .. } = tool.decl();
    let mut declaration = Map::from_iter([
        ("name".to_owned(), name.as_str().into()),
        (key.to_owned(), parameters.as_value().clone()),
    ]);
    declaration.extend(description.as_deref().map(|text| ("description".to_owned(), text.into())));
    declaration
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use portcullis_testing::registries::{builder, registry};
    use portcullis_tools::policy::DEFAULT_POLICY;
    use portcullis_types::{Tool, ToolError, ToolMeta};

    use super::*;

    /// A tool of the embedder.
    struct HintedTool(ToolMeta);

    #[async_trait]
    impl Tool for HintedTool {
        fn schema(&self) -> FunctionDecl {
            let parameters = json!({"type": "object", "properties": {"any": {}}, "required": []});
            FunctionDecl { name: "odd".into(), description: None, parameters: JsonSchema::new(parameters) }
        }
        async fn execute(&self, _: &str) -> Result<String, ToolError> {
            Ok(String::new())
        }
        fn timeout(&self) -> std::time::Duration {
            portcullis_types::DEFAULT_TIMEOUT
        }
        fn safety_tier(&self) -> SafetyTier {
            SafetyTier::SideEffecting
        }
        fn output_schema(&self) -> Option<JsonSchema> {
            Some(JsonSchema::empty_object())
        }
        fn label(&self) -> Option<String> {
            Some("Odd".to_owned())
        }
        fn meta(&self) -> ToolMeta {
            self.0.clone()
        }
    }

    const ALL: [ToolListFormat; 5] = [
        ToolListFormat::OpenAi,
        ToolListFormat::OpenAiStrict,
        ToolListFormat::Anthropic,
        ToolListFormat::Gemini,
        ToolListFormat::Mcp,
    ];

    fn registry_with(meta: ToolMeta) -> (tempfile::TempDir, ToolRegistry) {
        let (state, builder) = builder(&format!("{DEFAULT_POLICY}\n[tools.odd]\nenabled = true\n"));
        (state, builder.tool(HintedTool(meta)).build().expect("builds"))
    }

    #[test]
    fn the_manual_names_the_annotations_and_all_other_fields() {
        let manual = include_str!("../../docs/mcp.md");
        let (_state, registry) = registry_with(ToolMeta::default());
        let tools = ToolListFormat::Mcp.tools(&registry).tools;
        let odd = tools.iter().find(|tool| tool["name"] == "odd").expect("the tool");
        let (_, table) = manual.split_once("| annotation | true for |").expect("the table");
        let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
        let annotations = odd["annotations"].as_object().expect("annotations");
        assert_eq!(rows.len(), annotations.len(), "{rows:?}");
        for name in annotations.keys() {
            assert!(rows.iter().any(|row| row.starts_with(&format!("| `{name}` |"))), "no row of {name}");
        }
        for name in odd.as_object().expect("fields").keys() {
            assert!(manual.contains(&format!("`{name}`")), "docs/mcp.md does not name {name}");
        }
    }

    #[test]
    fn disabled_or_hidden_tool_is_offered_to_no_model() {
        let policy = "[tools.add]\nenabled = false\n[tools.echo]\napproval = \"deny\"\n";
        let (_state, disabled) = registry(policy);
        let (_other, hidden) = registry_with(ToolMeta { hidden: true, ..ToolMeta::default() });
        for client in ALL {
            let text = client.request(client.tools(&disabled).tools).to_string();
            assert!(!text.contains(r#""add""#) && !text.contains(r#""echo""#), "{text}");
            assert!(text.contains(r#""divide""#), "{text}");
            let text = client.request(client.tools(&hidden).tools).to_string();
            assert!(!text.contains(r#""odd""#) && text.contains(r#""add""#), "{text}");
        }
    }

    #[test]
    fn a_tool_has_the_shape_that_each_client_knows() {
        let (_state, registry) = registry("");
        let tool = &registry.get("get_current_time").expect("shipped");
        let shapes = ALL.map(|client| client.tool(&registry, tool).expect("every client can say it"));
        insta::assert_snapshot!(serde_json::to_string_pretty(&shapes).expect("encodes"));
    }

    #[test]
    fn a_schema_beyond_strict_mode_is_offered_loosely_or_left_out() {
        let (_state, registry) = registry_with(ToolMeta { idempotent: true, ..ToolMeta::default() });
        let offered_tool = |client: ToolListFormat| {
            let OfferedTools { tools, remarks } = client.tools(&registry);
            let is_odd_tool = |tool: &Value| tool["name"] == "odd" || tool["function"]["name"] == "odd";
            let tool = tools.into_iter().find(is_odd_tool);
            (tool, remarks)
        };
        let (tool, remarks) = offered_tool(ToolListFormat::OpenAi);
        assert_eq!((&tool.expect("offered")["function"]["strict"], remarks.len()), (&Value::Null, 0));
        for client in [ToolListFormat::OpenAiStrict, ToolListFormat::Anthropic] {
            let (tool, remarks) = offered_tool(client);
            let tool = tool.expect("offered");
            assert!(tool["strict"] == false || tool["function"]["strict"] == false, "{tool}");
            assert!(remarks[0].starts_with("`odd` is not in strict mode: dialect `"), "{remarks:?}");
        }
        let (tool, remarks) = offered_tool(ToolListFormat::Gemini);
        assert_eq!((tool, remarks.len()), (None, 1));
        assert!(remarks[0].starts_with("`odd` is left out: dialect `gemini`"), "{remarks:?}");
        let (tool, remarks) = offered_tool(ToolListFormat::Mcp);
        let tool = tool.expect("offered");
        assert_eq!((&tool["title"], &tool["outputSchema"]["type"]), (&json!("Odd"), &json!("object")));
        assert_eq!(
            tool["annotations"],
            json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": true})
        );
        assert!(remarks.is_empty());
    }
}
