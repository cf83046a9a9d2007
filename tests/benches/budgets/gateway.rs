//! The gateway: events to many readers, results for waiting runs, listings of many calls, and the memory of
//! idle agents.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use portcullis_agent::{
    Delta, DeltaStream, ModelRequest, Provider, ProviderError, StopReason, ToolCallDelta,
};
use portcullis_gateway::{ChosenModel, Gateway, GatewayParts, Models};
use portcullis_runs::{
    ModelIdentity, RunDriver, Runs,
    store::{
        ExternalCallStatus, GatewayStore, Json, LeaseGuard, NewExternalCall, NewRun, SqliteOptions,
        open_gateway_sqlite,
    },
};
use portcullis_testing::Fixture;
use portcullis_types::{CancellationToken, MessageRole, async_trait};
use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    arguments::parsing_slowness,
    report::{Report, Slowness},
    runs::sync_times,
    sample::{median_us, quantile_us, resident_bytes},
};

const READERS: usize = 1_000;
const EVENTS: usize = 50;
/// The number of cycles with pending calls, and of calls in each.
const CYCLES: usize = 40;
const CALLS: usize = 5;
const PENDING_CALLS: usize = 10_000;
/// The store's limit on the pending calls of a run.
const CALLS_OF_A_RUN: usize = 1_000;
const LISTINGS: usize = 9;
const IDLE_AGENTS: usize = 1_000;
/// A space has at most 1 000 members.
const AGENTS_OF_A_SPACE: usize = 250;

pub(crate) async fn serving(report: &mut Report) {
    portcullis_shell_daemon::raise_descriptor_limit();
    let served = Served::new().await;
    events(&served, report).await;
    results(&served, report).await;
    listings(&served, report).await;
    drop(served);
    tokio::task::block_in_place(|| idle_agents(report));
}

/// A gateway of this process, at a separate address.
struct Served {
    gateway: Arc<Gateway>,
    store: Arc<dyn GatewayStore>,
    admin: String,
    address: SocketAddr,
    /// The times at which the model was asked after a result.
    resumed: tokio::sync::Mutex<mpsc::UnboundedReceiver<Instant>>,
    _work: JoinSet<()>,
    fixture: Fixture,
}

impl Served {
    async fn new() -> Self {
        let fixture = Fixture::new();
        // The registry creates the state folder, so it comes first.
        let registry = Arc::new(fixture.registry().await);
        let file = fixture.state().join("gateway.db");
        let store = open_gateway_sqlite(&file, SqliteOptions::default()).await.expect("a store");
        let (asked, resumed) = mpsc::unbounded_channel();
        let parts = GatewayParts {
            runs: Runs::new(
                Arc::clone(&store) as Arc<_>,
                RunDriver::start(&fixture.state()).expect("starts"),
            ),
            store: Arc::clone(&store),
            registry,
            models: Arc::new(OneModel(Arc::new(Waiting(asked)))),
            workspace: "/work".to_owned(),
            audit_log: portcullis_tools::audit::log_path(&fixture.state()),
            extensions: None,
        };
        let gateway = Gateway::new(parts, CancellationToken::new()).await.expect("starts");
        let gateway = Arc::new(gateway);
        let admin = gateway.make_admin_token().await.expect("a token");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let mut work = JoinSet::new();
        let serving = Arc::clone(&gateway);
        work.spawn(async move { serving.serve(listener).await });
        let resumed = tokio::sync::Mutex::new(resumed);
        Self { gateway, store, admin, address, resumed, _work: work, fixture }
    }

    async fn ask(&self, token: &str, method: &str, path: &str, body: Value) -> Value {
        self.gateway.request(token, method, path, body).await.expect("is answered")
    }

    /// Creates a resource, and returns its id.
    async fn make(&self, path: &str, body: Value) -> String {
        text(&self.ask(&self.admin, "POST", path, body).await, "id")
    }

    /// Creates a user in a new space. Returns the user's token and the space.
    async fn person(&self) -> (String, String) {
        let user = self.make("/api/users", json!({"name": "Ada"})).await;
        let space = self.make("/api/spaces", json!({"name": "Work"})).await;
        self.join(&space, &user).await;
        let body = json!({"subject": "user", "id": user});
        (text(&self.ask(&self.admin, "POST", "/api/tokens", body).await, "token"), space)
    }

    async fn join(&self, space: &str, member: &str) {
        let path = format!("/api/spaces/{space}/members/{member}");
        self.ask(&self.admin, "PUT", &path, Value::Null).await;
    }

    /// Opens a stream of events.
    async fn reader(&self, path: &str) -> tokio::net::TcpStream {
        let mut stream = tokio::net::TcpStream::connect(self.address).await.expect("connects");
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", self.admin);
        stream.write_all(head.as_bytes()).await.expect("sends");
        // The stream begins with the delay before a reconnect.
        let mut begun = Vec::new();
        while !begun.windows(6).any(|window| window == b"retry:") {
            assert_ne!(stream.read_buf(&mut begun).await.expect("reads"), 0);
        }
        stream
    }
}

/// Measures the time until all readers of a space have a message.
async fn events(served: &Served, report: &mut Report) {
    let (token, space) = served.person().await;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let mut stream = served.reader(&format!("/api/spaces/{space}/events")).await;
        let arrived = arrived.clone();
        readers.spawn(async move {
            let mut buffer = Vec::new();
            while stream.read_buf(&mut buffer).await.is_ok_and(|read| read > 0) {
                if buffer.windows(22).any(|window| window == b"event: message.created") {
                    // The receiver is closed after the measurement.
                    let _ = arrived.send(Instant::now());
                    buffer.clear();
                }
            }
        });
    }
    let mut samples = Vec::with_capacity(READERS * EVENTS);
    for number in 0..EVENTS {
        let start = Instant::now();
        let path = format!("/api/spaces/{space}/messages");
        served.ask(&token, "POST", &path, json!({"text": format!("message {number}")})).await;
        for _ in 0..READERS {
            samples.push(arrivals.recv().await.expect("readers live") - start);
        }
    }
    let p99 = quantile_us(&mut samples, 0.99) / 1000.0;
    report.add_reference(
        "a message, until one of 1 000 readers has it, p50",
        median_us(&mut samples) / 1000.0,
        "ms",
    );
    report.check_at_most("… p99", p99, 50.0, "ms");
}

/// Measures the time from a call's result until the waiting run asks its model again.
async fn results(served: &Served, report: &mut Report) {
    let (token, space) = served.person().await;
    let tool = json!({
        "name": "fetch",
        "description": "Asks a program.",
        "inputSchema": {"type": "object"},
        "executionType": "external",
        "visible": false,
        "timeout": 60_000,
    });
    let agent = served.make("/api/agents", json!({"name": "Waiting", "tools": [tool]})).await;
    served.join(&space, &agent).await;
    let mut events = served.reader(&format!("/api/agents/{agent}/events")).await;
    let mut resumed = served.resumed.lock().await;
    let (mut samples, mut syncs, mut buffer) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CYCLES {
        syncs.extend(sync_times(&served.fixture.state()));
        let path = format!("/api/spaces/{space}/messages");
        served.ask(&token, "POST", &path, json!({"text": "Go on"})).await;
        for _ in 0..CALLS {
            let call = pending_call(&mut events, &mut buffer).await;
            let body = json!({"callId": call["callId"], "result": {"found": 1}});
            let path = format!("/api/runs/{}/tool-results", text(&call, "runId"));
            let start = Instant::now();
            served.ask(&served.admin, "POST", &path, body).await;
            samples.push(resumed.recv().await.expect("the model lives") - start);
        }
    }
    let p99 = quantile_us(&mut samples, 0.99) / 1000.0;
    report.add_reference(
        "a result, until the run that waited asks its model, p50",
        median_us(&mut samples) / 1000.0,
        "ms",
    );
    let sync = median_us(&mut syncs);
    report.add_reference("a sync of 4 KiB on the same disk, p50", sync, "µs");
    report.check_at_most_scaled("… p99", p99, 5.0, "ms", Slowness::from_sync_time(sync));
}

/// Returns the data of the next event `call.pending`.
async fn pending_call(stream: &mut tokio::net::TcpStream, buffer: &mut Vec<u8>) -> Value {
    loop {
        let read = String::from_utf8_lossy(buffer).into_owned();
        if let Some((_, rest)) = read.split_once("event: call.pending\ndata: ")
            && let Some((data, rest)) = rest.split_once('\n')
        {
            let call = serde_json::from_str(data).expect("JSON");
            *buffer = rest.as_bytes().to_vec();
            return call;
        }
        assert_ne!(stream.read_buf(buffer).await.expect("reads"), 0);
    }
}

/// Returns the number of a page's items and the next cursor. Does not parse the items, because that is the
/// client's work.
fn read_page(answer: &[u8]) -> (usize, Option<String>) {
    let page: BTreeMap<String, &RawValue> = serde_json::from_slice(answer).expect("a page");
    let items: Vec<&RawValue> = serde_json::from_str(page["items"].get()).expect("items");
    (items.len(), serde_json::from_str(page["next"].get()).expect("a cursor"))
}

/// Measures the listing of all pending calls, page by page over one connection.
async fn listings(served: &Served, report: &mut Report) {
    let agent = served.make("/api/agents", json!({"name": "Busy", "tools": []})).await;
    for run in 0..PENDING_CALLS / CALLS_OF_A_RUN {
        add_calls(served, &agent, &format!("run_{run:016x}")).await;
    }
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let address = format!("http://{}/api/calls?agentId={agent}&status=pending&limit=1000", served.address);
    let mut times = Vec::with_capacity(LISTINGS);
    for _ in 0..LISTINGS {
        let start = Instant::now();
        let (mut count, mut after) = (0, String::new());
        loop {
            let request = client.get(format!("{address}{after}")).bearer_auth(&served.admin);
            let answer = request.send().await.expect("answers").bytes().await.expect("reads");
            let (items, next) = read_page(&answer);
            count += items;
            match next {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        times.push(start.elapsed());
        assert_eq!(count, PENDING_CALLS);
    }
    let listed = median_us(&mut times) / 1000.0;
    report.check_at_most_scaled("10 000 pending calls listed, p50", listed, 50.0, "ms", parsing_slowness());
}

/// Adds a run with the maximum number of pending calls.
async fn add_calls(served: &Served, agent: &str, run: &str) {
    let new = NewRun {
        id: run.to_owned(),
        agent: agent.to_owned(),
        workspace: "/work".to_owned(),
        created: 1,
        state: Json::of(&json!({})).expect("JSON"),
        labels: Vec::new(),
        messages: Vec::new(),
        lease: Some(("bench".to_owned(), i64::MAX)),
        consumed_inbox: None,
    };
    let guard = LeaseGuard { run: run.to_owned(), owner: "bench".to_owned(), now: 1 };
    served.store.create_run(new).await.expect("made");
    let adding = (0..CALLS_OF_A_RUN).map(|number| {
        let call = NewExternalCall {
            id: format!("{run}_{number}"),
            tool: "fetch".to_owned(),
            arguments: Json::of(&json!({ "query": number })).expect("JSON"),
            inbox: agent.to_owned(),
            status: ExternalCallStatus::Pending,
            expires: None,
        };
        served.store.add_external_call(guard.clone(), call)
    });
    let mut adding = stream::iter(adding).buffer_unordered(256);
    while let Some(added) = adding.next().await {
        added.expect("added");
    }
}

/// Measures the memory of the program after each of its agents has had a cycle.
#[expect(clippy::disallowed_methods, reason = "the measurement ends the program itself")]
fn idle_agents(report: &mut Report) {
    let fixture = Fixture::new();
    let model = quiet_model();
    let token = fixture.root().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef").expect("written");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&token, private).expect("set");
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        listener.local_addr().expect("an address")
    };
    let mut program = Command::new(portcullis_testing::binary())
        .args(fixture.options())
        .args(["gateway", "--http", &address.to_string(), "--token-file"])
        .arg(&token)
        .args(["--provider", "openai", "--model", "m", "--base-url", &format!("http://{model}/v1")])
        .env("XDG_CONFIG_HOME", fixture.root().join("config"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let client = Client(address);
    let user = text(&client.ask("POST", "/api/users", &json!({"name": "Ada"})), "id");
    let mut spaces = Vec::new();
    for number in 0..IDLE_AGENTS {
        if number % AGENTS_OF_A_SPACE == 0 {
            let space = text(&client.ask("POST", "/api/spaces", &json!({"name": "All"})), "id");
            client.ask("PUT", &format!("/api/spaces/{space}/members/{user}"), &Value::Null);
            spaces.push(space);
        }
        let space = spaces.last().expect("made above");
        let agent = json!({"name": format!("Agent {number}"), "instructions": "Help.", "tools": []});
        let agent = text(&client.ask("POST", "/api/agents", &agent), "id");
        client.ask("PUT", &format!("/api/spaces/{space}/members/{agent}"), &Value::Null);
    }
    let body = json!({"subject": "user", "id": user});
    let token = text(&client.ask("POST", "/api/tokens", &body), "token");
    for space in &spaces {
        let messages = format!("/api/spaces/{space}/messages");
        client.ask_as(&token, "POST", &messages, &json!({"text": "Good morning"}));
    }
    while client.count("/api/runs?status=completed") < IDLE_AGENTS {
        thread::sleep(Duration::from_millis(500));
    }
    let resident = resident_bytes(program.id()) as f64 / 1e6;
    program.kill().expect("ends");
    program.wait().expect("ended");
    report.check_at_most("memory with 1 000 agents that have had a cycle", resident, 300.0, "MB");
}

/// A client of the program, with one connection for each request.
struct Client(SocketAddr);

const OPERATOR: &str = "0123456789abcdef0123456789abcdef";

impl Client {
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask_as(OPERATOR, method, path, body)
    }

    fn ask_as(&self, token: &str, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = loop {
            match TcpStream::connect(self.0) {
                Ok(stream) => break stream,
                // The program has just been started.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("sends");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("reads");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
        serde_json::from_str(body).unwrap_or_default()
    }

    /// Counts the items of all pages.
    fn count(&self, path: &str) -> usize {
        let (mut items, mut after) = (0, String::new());
        loop {
            let page = self.ask("GET", &format!("{path}&limit=1000{after}"), &Value::Null);
            items += page["items"].as_array().expect("a page").len();
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return items,
            }
        }
    }
}

/// Starts a model that always answers without calls, and returns its address. It runs until the process ends.
fn quiet_model() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(stream: TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).is_err() || line.is_empty() {
            return;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).expect("a body");
    let body = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Nothing.\"},\"finish_reason\":\"stop\"}]}\n\n\
                data: [DONE]\n\n";
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // The program may have ended.
    let _ = reader.into_inner().write_all(head.as_bytes());
}

/// A model that makes one external call in each turn, until it has made enough.
struct Waiting(mpsc::UnboundedSender<Instant>);

#[async_trait]
impl Provider for Waiting {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        let asked = Instant::now();
        let messages = request.messages.iter().rev();
        let results = messages.take_while(|message| message.role != MessageRole::User);
        let results = results.filter(|message| message.role == MessageRole::Tool).count();
        if results > 0 {
            // The receiver is closed after the measurement.
            let _ = self.0.send(asked);
        }
        let can_fetch = request.tools.iter().any(|tool| tool.name.as_str() == "fetch");
        let deltas = if can_fetch && results < CALLS {
            let call = ToolCallDelta {
                index: 0,
                id: Some(format!("call-{results}")),
                name: Some("fetch".to_owned()),
                // The loop warns a model that repeats a call, so each call has other arguments.
                arguments: Some(format!("{{\"number\":{results}}}")),
            };
            vec![Delta::ToolCall(call), Delta::End(StopReason::ToolCalls)]
        } else {
            vec![Delta::Text("Done.".to_owned()), Delta::End(StopReason::Stop)]
        };
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

struct OneModel(Arc<dyn Provider>);

#[async_trait]
impl Models for OneModel {
    async fn choose(&self, _agent: &str, _model: Option<&str>) -> Result<ChosenModel, ProviderError> {
        let identity = ModelIdentity { name: "script".to_owned(), address: None };
        Ok(ChosenModel { provider: Arc::clone(&self.0), identity })
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}")).to_owned()
}
