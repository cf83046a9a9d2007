//! A gateway over a store, with scripted models.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    body::{Body, BodyDataStream},
    http::{Request, StatusCode, header},
};
use futures_util::StreamExt as _;
use portcullis_agent::{DeltaStream, ModelRequest, Provider, ProviderError, ScriptedProvider};
use portcullis_gateway::{ChosenModel, Gateway, GatewayParts, Models};
use portcullis_runs::{ModelIdentity, RunDriver, Runs};
use portcullis_store::{
    Author, Change, GatewayStore, MessageKind, MessageStatus, NewMessage, ParticipantKind, SqliteOptions,
    open_gateway_sqlite,
};
use portcullis_tools::{
    ToolRegistry,
    policy::{DEFAULT_POLICY, LoadOptions, PolicySource, WorkspaceSecurityPolicy},
};
use portcullis_types::{CancellationToken, SandboxTier};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

/// How long a test waits for an expected event.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The turns of a model, one script each, and the prompts that it has read.
#[derive(Debug, Default)]
pub(crate) struct Script {
    turns: Mutex<VecDeque<String>>,
    pub(crate) requests: Mutex<Vec<ModelRequest>>,
}

/// The model that plays a script.
struct Player(Arc<Script>);

#[async_trait]
impl Provider for Player {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        self.0.requests.lock().expect("not poisoned").push(request.clone());
        let turn = self.0.turns.lock().expect("not poisoned").pop_front();
        let turn = turn.unwrap_or_else(|| says("Nothing to do."));
        ScriptedProvider::from_lines(&turn).expect("a script").stream(request).await
    }
}

struct OneModel(Arc<Script>);

#[async_trait]
impl Models for OneModel {
    async fn choose(&self, _agent: &str, _model: Option<&str>) -> Result<ChosenModel, ProviderError> {
        let identity = ModelIdentity { name: "script".to_owned(), address: None };
        Ok(ChosenModel { provider: Arc::new(Player(Arc::clone(&self.0))), identity })
    }
}

/// Returns a turn that ends with this text.
pub(crate) fn says(text: &str) -> String {
    format!("{}\n{}\n", json!({"text": text}), json!({"end": "stop"}))
}

/// Returns a turn with these calls. Their arguments arrive in two pieces.
pub(crate) fn calls(calls: &[(&str, Value)]) -> String {
    let mut script = String::new();
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let text = arguments.to_string();
        let mut middle = text.len() / 2;
        while !text.is_char_boundary(middle) {
            middle += 1;
        }
        let (first, second) = text.split_at(middle);
        for line in [
            json!({"call": {"index": index, "id": format!("c{index}"), "name": name, "arguments": first}}),
            json!({"call": {"index": index, "arguments": second}}),
        ] {
            script.push_str(&format!("{line}\n"));
        }
    }
    script.push_str(&format!("{}\n", json!({"end": "tool_calls"})));
    script
}

/// A gateway that runs in the background until it is dropped.
pub(crate) struct World {
    state: TempDir,
    pub(crate) store: Arc<dyn GatewayStore>,
    pub(crate) script: Arc<Script>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) admin: String,
    stop: CancellationToken,
    work: JoinSet<()>,
    policy: String,
}

impl World {
    /// Creates a gateway over a new SQLite file, under the shipped policy.
    pub(crate) async fn new() -> Self {
        Self::with_policy("").await
    }

    /// Same as `new`, with these lines appended to the shipped policy.
    pub(crate) async fn with_policy(policy: &str) -> Self {
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let state = tempfile::Builder::new().permissions(private).tempdir().expect("a folder");
        let file = state.path().join("gateway.db");
        let store = open_gateway_sqlite(&file, SqliteOptions::default()).await.expect("a store");
        Self::in_store(state, store, policy).await
    }

    /// Creates a gateway over this store.
    pub(crate) async fn in_store(state: TempDir, store: Arc<dyn GatewayStore>, policy: &str) -> Self {
        let script = Arc::new(Script::default());
        let stop = CancellationToken::new();
        let gateway = start(&state, &store, &script, policy, stop.clone()).await;
        let admin = gateway.make_admin_token().await.expect("a token");
        let mut world = Self {
            state,
            store,
            script,
            gateway,
            admin,
            stop,
            work: JoinSet::new(),
            policy: policy.to_owned(),
        };
        world.work();
        world
    }

    fn work(&mut self) {
        let gateway = Arc::clone(&self.gateway);
        self.work.spawn(async move { gateway.work().await });
    }

    /// Ends the gateway as a crash would, and starts another over the same store.
    pub(crate) async fn restart(&mut self) {
        self.work.shutdown().await;
        self.stop = CancellationToken::new();
        self.gateway = start(&self.state, &self.store, &self.script, &self.policy, self.stop.clone()).await;
        self.work();
    }

    /// Adds turns of the model.
    pub(crate) fn plays(&self, turns: impl IntoIterator<Item = String>) {
        self.script.turns.lock().expect("not poisoned").extend(turns);
    }

    /// Returns the prompts that the model has read so far: the last inbox message of each request.
    pub(crate) fn prompts(&self) -> Vec<String> {
        let requests = self.script.requests.lock().expect("not poisoned");
        let last = requests.iter().filter_map(|request| request.messages.last());
        let prompts = last.filter(|message| message.role == portcullis_types::MessageRole::User);
        prompts.map(portcullis_types::Message::text).collect()
    }

    /// Returns the tool results that the model has read, in order and without duplicates.
    pub(crate) fn tool_results(&self) -> Vec<String> {
        let requests = self.script.requests.lock().expect("not poisoned");
        let last = requests.last().map(|request| request.messages.clone()).unwrap_or_default();
        let results = last.iter().filter(|message| message.role == portcullis_types::MessageRole::Tool);
        results.map(portcullis_types::Message::text).collect()
    }

    /// Makes a request, and returns its answer.
    pub(crate) async fn call(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let mut request = Request::builder().method(method).uri(path);
        if !token.is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = match body {
            Some(body) => {
                request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string()))
            }
            None => request.body(Body::empty()),
        };
        let response = self.gateway.router().oneshot(request.expect("a request")).await.expect("answers");
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), 64 << 20).await.expect("a body");
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Makes a request that must succeed.
    pub(crate) async fn ok(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.call(token, method, path, body).await;
        assert!(status.is_success(), "{method} {path}: {status} {answer}");
        answer
    }

    /// Creates a user with a token. Returns the id and the token.
    pub(crate) async fn user(&self, name: &str) -> (String, String) {
        let user = self.ok(&self.admin, "POST", "/api/users", Some(json!({"name": name}))).await;
        let id = text(&user, "id");
        (id.clone(), self.token("user", &id).await)
    }

    /// Creates a token for this subject.
    pub(crate) async fn token(&self, subject: &str, id: &str) -> String {
        self.token_with_id(subject, id).await.1
    }

    /// Creates a token for this subject. Returns the token's id and the token.
    pub(crate) async fn token_with_id(&self, subject: &str, id: &str) -> (String, String) {
        let body = json!({"subject": subject, "id": id});
        let made = self.ok(&self.admin, "POST", "/api/tokens", Some(body)).await;
        (text(&made, "id"), text(&made, "token"))
    }

    /// Writes messages of this user directly into the store, past the rate limit.
    pub(crate) async fn fill(&self, space: &str, user: &str, count: usize) {
        let author = Author { id: user.to_owned(), kind: ParticipantKind::User, name: "Ada".to_owned() };
        for start in (0..count).step_by(1_000) {
            let message = |number| {
                Change::PostMessage(NewMessage {
                    id: format!("msg_{number}"),
                    space: space.to_owned(),
                    author: author.clone(),
                    kind: MessageKind::Text,
                    text: format!("message with word{number}"),
                    reply_to: None,
                    status: MessageStatus::Complete,
                    call: None,
                    metadata: None,
                    created: 1,
                })
            };
            let changes = (start..count.min(start + 1_000)).map(message).collect();
            self.store.apply(changes).await.expect("written");
        }
    }

    /// Creates an agent with these tools.
    pub(crate) async fn agent(&self, name: &str, tools: Value) -> String {
        let body = json!({"name": name, "instructions": "Help.", "tools": tools});
        text(&self.ok(&self.admin, "POST", "/api/agents", Some(body)).await, "id")
    }

    /// Creates a space with these members.
    pub(crate) async fn space(&self, name: &str, members: &[&str]) -> String {
        let space = self.ok(&self.admin, "POST", "/api/spaces", Some(json!({"name": name}))).await;
        let id = text(&space, "id");
        for member in members {
            self.ok(&self.admin, "PUT", &format!("/api/spaces/{id}/members/{member}"), None).await;
        }
        id
    }

    /// Creates a person and a new space with the person and this agent. Returns the person's token and the
    /// space.
    pub(crate) async fn meet(&self, agent: &str) -> (String, String) {
        let (person, token) = self.user("Ada").await;
        let space = self.space("Work", &[&person, agent]).await;
        (token, space)
    }

    /// Sends a message.
    pub(crate) async fn say(&self, token: &str, space: &str, text: &str) -> Value {
        let path = format!("/api/spaces/{space}/messages");
        self.ok(token, "POST", &path, Some(json!({"text": text}))).await
    }

    /// Returns the messages of a space, the oldest first.
    pub(crate) async fn messages(&self, space: &str) -> Vec<Value> {
        let path = format!("/api/spaces/{space}/messages?limit=1000");
        let mut items = items(&self.ok(&self.admin, "GET", &path, None).await);
        items.reverse();
        items
    }

    /// Opens the stream of events at this path.
    pub(crate) async fn events(&self, token: &str, path: &str, last: Option<i64>) -> Events {
        let mut request =
            Request::builder().uri(path).header(header::AUTHORIZATION, format!("Bearer {token}"));
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        let request = request.body(Body::empty()).expect("a request");
        let response = self.gateway.router().oneshot(request).await.expect("answers");
        assert_eq!(response.status(), StatusCode::OK);
        Events { body: response.into_body().into_data_stream(), buffer: String::new() }
    }

    /// Waits until `look` returns a value.
    pub(crate) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let waiting = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("{what} did not happen"))
    }

    /// Waits until this many runs of an agent have ended, and returns them, the oldest first.
    pub(crate) async fn ended_runs(&self, agent: &str, count: usize) -> Vec<Value> {
        let path = format!("/api/runs?agentId={agent}&limit=1000");
        self.until("the end of runs", async || {
            let mut runs = items(&self.ok(&self.admin, "GET", &path, None).await);
            runs.reverse();
            let ended = runs.iter().filter(|run| run["status"] != "running").count();
            (ended >= count && ended == runs.len()).then_some(runs)
        })
        .await
    }

    /// Waits for a call with this status, and returns it.
    pub(crate) async fn a_call(&self, status: &str) -> Value {
        let path = format!("/api/calls?status={status}");
        self.until("a call", async || items(&self.ok(&self.admin, "GET", &path, None).await).pop()).await
    }

    /// Submits the result of a call.
    pub(crate) async fn submit(&self, token: &str, call: &Value, result: Value) -> (StatusCode, Value) {
        let path = format!("/api/runs/{}/tool-results", text(call, "runId"));
        self.call(token, "POST", &path, Some(json!({"callId": call["callId"], "result": result}))).await
    }

    /// Asks the gateway to stop, and waits until it has.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        while self.work.join_next().await.is_some() {}
    }
}

async fn start(
    state: &TempDir,
    store: &Arc<dyn GatewayStore>,
    script: &Arc<Script>,
    policy: &str,
    stop: CancellationToken,
) -> Arc<Gateway> {
    let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
        operator: PolicySource { name: "test", text: &format!("{DEFAULT_POLICY}{policy}") },
        overlay: None,
        sandbox_tier: SandboxTier::Process,
    });
    let log = state.path().join("state");
    let act = portcullis_types::ToolName::parse("act").expect("a name");
    let registry = ToolRegistry::builder()
        .policy(policy.expect("loads"))
        .declare_late_tools([act])
        .default_tools()
        .state(&log)
        .build();
    let parts = GatewayParts {
        store: Arc::clone(store),
        runs: Runs::new(Arc::clone(store) as Arc<_>, RunDriver::start(state.path()).expect("starts")),
        registry: Arc::new(registry.expect("builds")),
        models: Arc::new(OneModel(Arc::clone(script))),
        workspace: "/work".to_owned(),
        audit_log: portcullis_tools::audit::log_path(&log),
        extensions: None,
    };
    Arc::new(Gateway::new(parts, stop).await.expect("starts"))
}

/// A stream of events.
pub(crate) struct Events {
    body: BodyDataStream,
    buffer: String,
}

/// An event as a reader gets it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReadEvent {
    pub(crate) id: Option<i64>,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Events {
    /// Returns the next event.
    pub(crate) async fn next(&mut self) -> ReadEvent {
        self.next_or_end().await.expect("the stream goes on")
    }

    /// Returns the next event, or `None` if the stream ends.
    async fn next_or_end(&mut self) -> Option<ReadEvent> {
        loop {
            while let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.buffer = rest;
                let field = |name: &str| {
                    block
                        .lines()
                        .find_map(|line| line.strip_prefix(name))
                        .map(|value| value.trim().to_owned())
                };
                if let Some(kind) = field("event:") {
                    let data = field("data:").unwrap_or_default();
                    return Some(ReadEvent {
                        id: field("id:").map(|id| id.parse().expect("a number")),
                        kind,
                        data: serde_json::from_str(&data).expect("JSON"),
                    });
                }
            }
            let chunk = tokio::time::timeout(TEST_TIMEOUT, self.body.next()).await.expect("an event in time");
            let chunk = chunk?.expect("readable");
            self.buffer.push_str(std::str::from_utf8(&chunk).expect("the output is UTF-8"));
        }
    }

    /// Returns the events until the stream ends.
    pub(crate) async fn rest(&mut self) -> Vec<ReadEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next_or_end().await {
            events.push(event);
        }
        events
    }

    /// Returns the events up to and including the first of this kind.
    pub(crate) async fn until(&mut self, kind: &str) -> Vec<ReadEvent> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await;
            let is_last = event.kind == kind;
            events.push(event);
            if is_last {
                return events;
            }
        }
    }
}

/// Returns a text of an answer.
pub(crate) fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}")).to_owned()
}

/// Returns the items of a listing.
pub(crate) fn items(listing: &Value) -> Vec<Value> {
    listing["items"].as_array().expect("a listing").clone()
}

/// Returns the configuration of a tool.
#[expect(clippy::needless_pass_by_value, reason = "a literal at each call")]
pub(crate) fn tool(name: &str, execution_type: &str, further: Value) -> Value {
    let mut tool = json!({
        "name": name,
        "description": "A tool of a test.",
        "inputSchema": {"type": "object", "additionalProperties": true},
        "executionType": execution_type,
    });
    tool.as_object_mut().expect("an object").extend(further.as_object().expect("an object").clone());
    tool
}
