//! The server for the protocol's conformance suite: our server with the tools that the suite expects, as
//! ordinary native tools. `.ci/mcp-conformance` starts it.
//!
//! Its one argument is a folder for its files. It prints its URL to standard output, and writes the token to
//! `state/mcp-token` below the folder. It ends when its standard input ends.

use std::{error::Error, fmt::Write as _, fs, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use portcullis_mcp::{
    BearerToken, Client, ClientError, Clients, HttpAccess, MCP_PATH, McpLimits, McpServer, serve_http,
};
use portcullis_tools::{PolicyFiles, ToolRegistry};
use portcullis_types::{
    CancellationToken, Content, FunctionDecl, JsonSchema, RunnerBootstrapEnvelope, SafetyTier, SandboxTier,
    Tool, ToolArgs, ToolContext, ToolError, ToolOutput,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, stdin};

/// A PNG image of one red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// A WAV file without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// The pause between two messages of a running tool.
const MESSAGE_PAUSE: Duration = Duration::from_millis(50);

/// A tool of the suite, by its behaviour.
#[derive(Debug, Clone, Copy)]
enum Behaviour {
    Text,
    Image,
    Audio,
    Resource,
    Several,
    Fail,
    Log,
    Progress,
    Reconnect,
    Ask,
    AskWithDefaults,
    AskForChoices,
    Schema,
}

/// The tools under the names of the suite. `test_sampling` is missing: no tool may ask a client's model.
const TOOLS: [(&str, Behaviour); 13] = [
    ("test_simple_text", Behaviour::Text),
    ("test_image_content", Behaviour::Image),
    ("test_audio_content", Behaviour::Audio),
    ("test_embedded_resource", Behaviour::Resource),
    ("test_multiple_content_types", Behaviour::Several),
    ("test_error_handling", Behaviour::Fail),
    ("test_tool_with_logging", Behaviour::Log),
    ("test_tool_with_progress", Behaviour::Progress),
    ("test_reconnection", Behaviour::Reconnect),
    ("test_elicitation", Behaviour::Ask),
    ("test_elicitation_sep1034_defaults", Behaviour::AskWithDefaults),
    ("test_elicitation_sep1330_enums", Behaviour::AskForChoices),
    ("json_schema_2020_12_tool", Behaviour::Schema),
];

struct SuiteTool {
    name: &'static str,
    behaviour: Behaviour,
    clients: Clients,
}

impl SuiteTool {
    fn client(&self, ctx: &ToolContext) -> Result<Client, ToolError> {
        self.clients.client_for(ctx).ok_or_else(|| ToolError::failed("the call came from no client"))
    }

    async fn ask(
        &self,
        ctx: &ToolContext,
        message: &str,
        properties: Value,
    ) -> Result<ToolOutput, ToolError> {
        let required: Vec<&String> =
            properties.as_object().map(|map| map.keys().collect()).unwrap_or_default();
        let schema = json!({"type": "object", "properties": properties, "required": required});
        let elicited =
            self.client(ctx)?.elicit(message, schema).await.map_err(|error| client_failure(&error))?;
        let content = elicited.content.unwrap_or_default();
        Ok(ToolOutput::text(format!("Elicitation completed: action={}, content={content}", elicited.action)))
    }
}

fn client_failure(error: &ClientError) -> ToolError {
    ToolError::failed(error.to_string())
}

#[async_trait]
impl Tool for SuiteTool {
    fn schema(&self) -> FunctionDecl {
        let parameters = match self.behaviour {
            Behaviour::Ask => json!({
                "type": "object",
                "properties": {"message": {"type": "string"}},
                "required": ["message"],
            }),
            Behaviour::Schema => json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "$defs": {"address": {
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }},
                "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
                "additionalProperties": false,
            }),
            _ => json!({"type": "object", "properties": {}}),
        };
        let description = Some(format!("A tool of the conformance suite: {:?}", self.behaviour));
        FunctionDecl { name: self.name.to_owned(), description, parameters: JsonSchema::new(parameters) }
    }

    async fn execute(&self, _args: &str) -> Result<String, ToolError> {
        Err(ToolError::failed("the registry uses `call`"))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::ReadOnly
    }

    async fn call(&self, ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        match self.behaviour {
            Behaviour::Text | Behaviour::Schema => {
                Ok(ToolOutput::text("This is a simple text response for testing."))
            }
            Behaviour::Image => Ok(output_of(vec![image()])),
            Behaviour::Audio => {
                Ok(output_of(vec![Content::Audio { data: WAV.into(), mime_type: "audio/wav".into() }]))
            }
            Behaviour::Resource => Ok(output_of(vec![resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content.",
            )])),
            Behaviour::Several => Ok(output_of(vec![
                Content::text("Multiple content types test:"),
                image(),
                resource(
                    "test://mixed-content-resource",
                    "application/json",
                    r#"{"test":"data","value":123}"#,
                ),
            ])),
            Behaviour::Fail => Err(ToolError::failed("This tool intentionally returns an error for testing")),
            Behaviour::Log => {
                let client = self.client(ctx)?;
                for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    client.log("info", json!(text)).await.map_err(|error| client_failure(&error))?;
                    tokio::time::sleep(MESSAGE_PAUSE).await;
                }
                Ok(ToolOutput::text("said"))
            }
            Behaviour::Progress => {
                let client = self.client(ctx)?;
                for progress in [0.0, 50.0, 100.0] {
                    client
                        .progress(progress, Some(100.0), None)
                        .await
                        .map_err(|error| client_failure(&error))?;
                    tokio::time::sleep(MESSAGE_PAUSE).await;
                }
                Ok(ToolOutput::text("reported"))
            }
            Behaviour::Reconnect => {
                tokio::time::sleep(MESSAGE_PAUSE * 2).await;
                Ok(ToolOutput::text("Reconnection test completed successfully"))
            }
            Behaviour::Ask => {
                let text = json!({"type": "string", "description": "User's response"});
                let email = json!({"type": "string", "description": "User's email address"});
                let message = args.value()["message"].as_str().unwrap_or_default();
                self.ask(ctx, message, json!({"username": text, "email": email})).await
            }
            Behaviour::AskWithDefaults => self.ask(ctx, "With defaults", form_with_defaults()).await,
            Behaviour::AskForChoices => self.ask(ctx, "Choices", form_with_choices()).await,
        }
    }
}

fn output_of(content: Vec<Content>) -> ToolOutput {
    ToolOutput { content, ..ToolOutput::default() }
}

fn image() -> Content {
    Content::Image { data: PNG.into(), mime_type: "image/png".into() }
}

fn resource(uri: &str, mime_type: &str, text: &str) -> Content {
    Content::Resource {
        uri: uri.into(),
        mime_type: Some(mime_type.into()),
        text: Some(text.into()),
        blob: None,
    }
}

/// Creates a form with a default for every primitive type.
fn form_with_defaults() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

/// Creates a form with every kind of choice.
fn form_with_choices() -> Value {
    let titled = json!([
        {"const": "value1", "title": "First"},
        {"const": "value2", "title": "Second"},
        {"const": "value3", "title": "Third"},
    ]);
    json!({
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("which folder may be filled?")?);
    let (workspace, state) = (folder.join("workspace"), folder.join("state"));
    fs::create_dir_all(&workspace)?;
    let mut envelope = RunnerBootstrapEnvelope::new(workspace, state.clone());
    let policy = folder.join("policy.toml");
    fs::write(&policy, policy_enabling_tools())?;
    envelope.policy = Some(policy);

    let clients = Clients::default();
    let policy = PolicyFiles::find(&envelope)?.load(SandboxTier::Process)?;
    let mut builder = ToolRegistry::builder().policy(policy).state(state.clone());
    for (name, behaviour) in TOOLS {
        builder = builder.tool(SuiteTool { name, behaviour, clients: clients.clone() });
    }
    let server = McpServer::with_clients(Arc::new(builder.build()?), McpLimits::default(), clients)?;

    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let (token, _) = BearerToken::from_state_folder(&state)?;
    // The suite expects the server's own origin to be permitted.
    let access = HttpAccess::new(token).origins([format!("http://{address}")]);
    let stop = CancellationToken::new();
    let serving = serve_http(&server, listener, access, stop.clone());
    announce(&format!("http://{address}{MCP_PATH}"));
    let leaving = async {
        while stdin().read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
        stop.cancel();
    };
    tokio::join!(serving, leaving);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the script that started this reads it")]
fn announce(url: &str) {
    println!("{url}");
}

/// Creates a policy that enables the suite's tools by name and otherwise equals the shipped policy.
fn policy_enabling_tools() -> String {
    let mut policy = portcullis_tools::policy::DEFAULT_POLICY.to_owned();
    for (name, _) in TOOLS {
        // Writing to a string cannot fail.
        let _ = write!(policy, "\n[tools.{name}]\nenabled = true\n");
    }
    policy
}
