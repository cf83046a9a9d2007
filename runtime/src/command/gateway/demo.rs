//! The demonstration of a gateway: a space, and a scripted agent that asks before it books.

use std::{fs, io, sync::Arc, time::Duration};

use portcullis_agent::{
    DeltaStream, ModelRequest, Provider, ProviderError, ProviderErrorKind, ScriptedProvider,
};
use portcullis_gateway::{ChosenModel, Gateway, Models};
use portcullis_runs::ModelIdentity;
use portcullis_tools::policy::DEFAULT_POLICY;
use portcullis_types::{Message, MessageRole, async_trait};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{cli::CommonOptions, error::CliError};

/// The pause between two pieces of the model's answer, so that a person sees the arguments arrive.
const PACE: Duration = Duration::from_millis(30);

/// The number of bytes of a call's arguments in one piece.
const PIECE: usize = 24;

/// The name of the model in rows.
const MODEL: &str = "demo";

/// A workspace under the shipped policy, which is removed at the end.
pub(super) struct GatewayDemo {
    _folder: TempDir,
    /// The options for this workspace.
    pub(super) common: CommonOptions,
}

impl GatewayDemo {
    pub(super) fn set_up(options: &CommonOptions) -> Result<Self, CliError> {
        let token_file = || {
            let folder = tempfile::Builder::new().prefix("portcullis-gateway-").tempdir()?;
            let workspace = folder.path().join("workspace");
            for mount in ["shared", "tmp", "vault"] {
                fs::create_dir_all(workspace.join(mount))?;
            }
            let policy = folder.path().join("policy.toml");
            fs::write(&policy, DEFAULT_POLICY)?;
            let common = CommonOptions {
                workspace: Some(workspace),
                mounts: Vec::new(),
                policy: Some(policy),
                state: Some(folder.path().join("state")),
                sandbox_tier: options.sandbox_tier,
                shell: options.shell.clone(),
                shell_token_file: options.shell_token_file.clone(),
                tool_files: Vec::new(),
            };
            Ok::<_, io::Error>(Self { _folder: folder, common })
        };
        token_file().map_err(|source| CliError::Demo { source })
    }

    /// Creates the person, the agent and the space. Returns the person's token.
    pub(super) async fn populate(&self, gateway: &Gateway, operator: &str) -> Result<String, CliError> {
        let tools = json!([
            {
                "name": "confirmAction",
                "description": "Asks a person to confirm an action.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"title": {"type": "string"}, "message": {"type": "string"}},
                    "required": ["title"],
                },
                "executionType": "space",
                "visible": true,
                "isAsync": true,
            },
            {
                "name": "displayChart",
                "description": "Shows a chart.",
                "inputSchema": {"type": "object", "additionalProperties": true},
                "executionType": "internal",
                "visible": true,
            },
        ]);
        // The demo uses the interface as a client does, so that it shows only what a client can do.
        let request = |method: &'static str, path: String, body: Value| {
            let gateway = &*gateway;
            async move {
                let answer = gateway.request(operator, method, &path, body).await;
                answer.map_err(|error| CliError::Demo { source: io::Error::other(error) })
            }
        };
        let user = request("POST", "/api/users".to_owned(), json!({"name": "You"})).await?;
        let agent = json!({"name": "Concierge", "instructions": "Help people to travel.", "tools": tools});
        let agent = request("POST", "/api/agents".to_owned(), agent).await?;
        let space = request("POST", "/api/spaces".to_owned(), json!({"name": "Travel"})).await?;
        for member in [&user, &agent] {
            let path = format!("/api/spaces/{}/members/{}", text(&space, "id"), text(member, "id"));
            request("PUT", path, Value::Null).await?;
        }
        let token = json!({"subject": "user", "id": text(&user, "id")});
        let token = request("POST", "/api/tokens".to_owned(), token).await?;
        Ok(text(&token, "token").to_owned())
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// One model for every agent of the demonstration.
pub(super) struct DemoModels;

#[async_trait]
impl Models for DemoModels {
    async fn choose(&self, _agent: &str, _model: Option<&str>) -> Result<ChosenModel, ProviderError> {
        let identity = ModelIdentity { name: MODEL.to_owned(), address: None };
        Ok(ChosenModel { provider: Arc::new(DemoModel), identity })
    }
}

/// A model that asks a person to confirm each request, and continues with the answer.
struct DemoModel;

#[async_trait]
impl Provider for DemoModel {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        let failed = |error| {
            let message = "the script of the demonstration is wrong";
            ProviderError::new(ProviderErrorKind::Configuration, message).with_source(error)
        };
        let script = script(&request.messages);
        ScriptedProvider::from_lines(&script).map_err(failed)?.with_pace(PACE).stream(request).await
    }
}

/// Returns the turn that answers this conversation, as a script.
fn script(messages: &[Message]) -> String {
    let Some(last) = messages.last() else { return ending("There is nothing to do.") };
    if last.role == MessageRole::Tool {
        return ending("Done.");
    }
    let prompt = last.text();
    let Some(space) = last_space(messages) else { return calls(&[("skip", json!({}))]) };
    let enter = ("enter_space", json!({"spaceId": space}));
    let result = prompt.lines().find_map(|line| line.strip_prefix("[Tool Result: confirmAction]"));
    match result {
        Some(result) if result.replace(' ', "").contains("\"confirmed\":true") => calls(&[
            enter,
            (
                "send_message",
                json!({"text": "Booked: three nights in Kanda, Tokyo, from Friday. This is what the week costs."}),
            ),
            (
                "displayChart",
                json!({
                    "type": "bar",
                    "title": "Costs of the week, in euros",
                    "labels": ["Flight", "Hotel", "Trains", "Meals"],
                    "series": [{"name": "Plan", "values": [780, 412, 96, 210]}],
                }),
            ),
        ]),
        Some(_) => calls(&[enter, ("send_message", json!({"text": "Understood. I have booked nothing."}))]),
        None => calls(&[
            enter,
            (
                "confirmAction",
                json!({
                    "title": "Book this hotel?",
                    "message": "Three nights in Kanda, Tokyo, from Friday, 412 euros. It can be cancelled until Thursday.",
                }),
            ),
        ]),
    }
}

/// Finds the space of the newest message in an inbox.
fn last_space(messages: &[Message]) -> Option<String> {
    let prompts = messages.iter().rev().filter(|message| message.role == MessageRole::User);
    let mut texts = prompts.map(Message::text);
    texts.find_map(|text| {
        let (_, rest) = text.rsplit_once("(spaceId: ")?;
        Some(rest.split([',', ')']).next()?.to_owned())
    })
}

fn ending(text: &str) -> String {
    format!("{}\n{}\n", json!({"text": text}), json!({"end": "stop"}))
}

/// Builds a turn with these calls, whose arguments arrive in pieces.
fn calls(calls: &[(&str, Value)]) -> String {
    let mut script = String::new();
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let id = format!("call-{index}");
        script.push_str(&format!("{}\n", json!({"call": {"index": index, "id": id, "name": name}})));
        let arguments: Vec<char> = arguments.to_string().chars().collect();
        for piece in arguments.chunks(PIECE) {
            let piece: String = piece.iter().collect();
            script.push_str(&format!("{}\n", json!({"call": {"index": index, "arguments": piece}})));
        }
    }
    script.push_str(&format!("{}\n", json!({"end": "tool_calls"})));
    script
}
