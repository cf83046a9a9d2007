//! Helpers for several areas: native tools that count their calls, callers that record events, and snapshots
//! of folders.

use std::{
    collections::BTreeMap,
    fs,
    future::Future,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use portcullis_testing::Fixture;
use portcullis_tools::{
    Caller, PolicyFiles, ToolCall, ToolRegistry,
    approval::{ApprovalAnswer, ApprovalRequest, Approver, AttributedAnswer},
    new_call,
    policy::DEFAULT_MAX_OUTPUT_BYTES,
};
use portcullis_types::{
    ArgumentRole, FunctionDecl, JsonSchema, SafetyTier, SandboxTier, Tool, ToolArgs, ToolContext, ToolError,
    ToolEvent, ToolMeta, ToolOutput, ToolPolicy,
};
use serde_json::{Value, json};

type Body = dyn Fn(ToolContext, ToolArgs) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;

/// A native tool that counts how many times it was polled. It accepts any arguments and declares no role.
#[derive(Clone)]
pub(crate) struct Spy {
    name: String,
    parameters: Value,
    tier: SafetyTier,
    policy: ToolPolicy,
    timeout: Duration,
    roles: Vec<ArgumentRole>,
    meta: ToolMeta,
    calls: Arc<AtomicUsize>,
    body: Arc<Body>,
}

impl Spy {
    pub(crate) fn new<F>(
        name: &str,
        body: impl Fn(ToolContext, ToolArgs) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        Self {
            name: name.to_owned(),
            parameters: json!({"type": "object", "properties": {}, "required": []}),
            tier: SafetyTier::ReadOnly,
            policy: ToolPolicy::Auto,
            timeout: Duration::from_secs(30),
            roles: Vec::new(),
            meta: ToolMeta::default(),
            calls: Arc::default(),
            body: Arc::new(move |ctx, args| Box::pin(body(ctx, args))),
        }
    }

    /// Creates a spy that answers with its arguments.
    pub(crate) fn repeating(name: &str) -> Self {
        Self::new(name, |_, args| async move { Ok(ToolOutput::text(args.text())) })
    }

    pub(crate) fn parameters(mut self, schema: Value) -> Self {
        self.parameters = schema;
        self
    }

    pub(crate) fn tier(mut self, tier: SafetyTier) -> Self {
        self.tier = tier;
        self
    }

    pub(crate) fn requiring_approval(mut self) -> Self {
        self.policy = ToolPolicy::RequiresApproval;
        self
    }

    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn role(mut self, role: ArgumentRole) -> Self {
        self.roles.push(role);
        self
    }

    pub(crate) fn meta(mut self, meta: ToolMeta) -> Self {
        self.meta = meta;
        self
    }

    /// Returns the count of the spy's calls, which stays readable after the spy is registered.
    pub(crate) fn calls(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.calls)
    }
}

#[async_trait]
impl Tool for Spy {
    fn schema(&self) -> FunctionDecl {
        let parameters = JsonSchema::new(self.parameters.clone());
        FunctionDecl { name: self.name.clone(), description: None, parameters }
    }

    async fn execute(&self, _args: &str) -> Result<String, ToolError> {
        Err(ToolError::failed("the registry uses `call`"))
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn safety_tier(&self) -> SafetyTier {
        self.tier
    }

    fn policy(&self) -> ToolPolicy {
        self.policy
    }

    fn roles(&self) -> Vec<ArgumentRole> {
        self.roles.clone()
    }

    fn meta(&self) -> ToolMeta {
        self.meta.clone()
    }

    async fn call(&self, ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        (self.body)(ctx.clone(), args.clone()).await
    }
}

/// Creates a fixture whose policy enables these native tools.
pub(crate) fn fixture_enabling(names: &[&str]) -> Fixture {
    names.iter().fold(Fixture::new(), |fixture, name| fixture.with_policy(&enabling_entry(name)))
}

/// Returns the policy entry that enables a native tool.
pub(crate) fn enabling_entry(name: &str) -> String {
    format!("[tools.{name}]\nenabled = true\n")
}

/// Creates a registry of only native tools, under the fixture's policy and in its state folder. It has no
/// WASM engine, which most steps of the pipeline do not use.
#[track_caller]
pub(crate) fn native_registry(fixture: &Fixture, spies: impl IntoIterator<Item = Spy>) -> ToolRegistry {
    let files = PolicyFiles::find(&fixture.envelope()).expect("policy files");
    let policy = files.load(SandboxTier::Process).expect("a policy");
    let builder = ToolRegistry::builder().policy(policy).state(fixture.state()).default_tools();
    spies.into_iter().fold(builder, portcullis_tools::RegistryBuilder::tool).build().expect("builds")
}

/// Returns a caller without an approver.
pub(crate) fn caller() -> Caller {
    Caller::new("tester", "run")
}

pub(crate) fn caller_asking(approver: impl Approver + 'static) -> Caller {
    let mut caller = caller();
    caller.approver = Some(Arc::new(approver));
    caller
}

type Answer = dyn Fn(usize, &ApprovalRequest) -> ApprovalAnswer + Send + Sync;

/// An approver that answers with a closure and records the requests.
#[derive(Clone)]
pub(crate) struct ScriptedApprover {
    answer: Arc<Answer>,
    pub(crate) received: Arc<Mutex<Vec<ApprovalRequest>>>,
}

impl ScriptedApprover {
    /// The closure gets the number of the question, from 0, and the request.
    pub(crate) fn new(
        answer: impl Fn(usize, &ApprovalRequest) -> ApprovalAnswer + Send + Sync + 'static,
    ) -> Self {
        Self { answer: Arc::new(answer), received: Arc::default() }
    }

    pub(crate) fn requests(&self) -> Vec<ApprovalRequest> {
        self.received.lock().expect("not poisoned").clone()
    }
}

#[async_trait]
impl Approver for ScriptedApprover {
    async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
        let number = {
            let mut received = self.received.lock().expect("not poisoned");
            received.push(request.clone());
            received.len() - 1
        };
        (self.answer)(number, request).into()
    }
}

/// Makes a caller record its events. The list gets the name of each event.
pub(crate) fn record_events(caller: &mut Caller) -> Arc<Mutex<Vec<String>>> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    caller.on_event = Some(Arc::new(move |event| sink.lock().expect("not poisoned").push(event_word(event))));
    events
}

fn event_word(event: &ToolEvent) -> String {
    match event {
        ToolEvent::Requested { tool, .. } => format!("requested {tool}"),
        ToolEvent::ApprovalRequested { .. } => "approval requested".to_owned(),
        ToolEvent::ApprovalResolved { approved, .. } => format!("approval {approved}"),
        ToolEvent::Started { tool, .. } => format!("started {tool}"),
        ToolEvent::Heartbeat { elapsed, .. } => format!("heartbeat {} s", elapsed.as_secs()),
        ToolEvent::Progress { text, .. } => format!("progress {text}"),
        ToolEvent::Update { partial, .. } => format!("update {}", partial.joined_text()),
        ToolEvent::Finished { error: None, .. } => "finished".to_owned(),
        ToolEvent::Finished { error: Some(kind), .. } => format!("finished {kind}"),
        other => format!("{other:?}"),
    }
}

/// Creates a call whose arguments are sent unchanged.
pub(crate) fn raw_call(tool: &str, arguments: &str) -> ToolCall {
    new_call(tool, arguments)
}

/// Returns the kind, mode and content of everything below a folder, by path.
pub(crate) fn snapshot(folder: &Path) -> BTreeMap<String, String> {
    let mut entries = BTreeMap::new();
    collect_entries(folder, folder, &mut entries);
    entries
}

fn collect_entries(root: &Path, folder: &Path, entries: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        let metadata = fs::symlink_metadata(&path).expect("the path exists");
        let kind = metadata.file_type();
        let content = if kind.is_symlink() {
            format!("link to {}", fs::read_link(&path).expect("a link").display())
        } else if kind.is_dir() {
            "folder".to_owned()
        } else if kind.is_fifo() || kind.is_socket() || kind.is_char_device() {
            "special".to_owned()
        } else if metadata.len() > 1 << 20 {
            format!("{} bytes", metadata.len())
        } else {
            format!("{:?}", fs::read(&path).expect("readable"))
        };
        let name = path.strip_prefix(root).expect("below").to_string_lossy().into_owned();
        entries.insert(name, format!("{:o} {content}", metadata.mode()));
        if kind.is_dir() {
            collect_entries(root, &path, entries);
        }
    }
}

/// Asserts that no file below a folder has the text in its content or its name.
#[track_caller]
pub(crate) fn assert_nowhere_below(folder: &Path, text: &str) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable") {
            let path = entry.expect("readable").path();
            assert!(!path.to_string_lossy().contains(text), "`{text}` is in the name {}", path.display());
            let kind = fs::symlink_metadata(&path).expect("the path exists").file_type();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(&path).expect("readable");
                let found = bytes.windows(text.len()).any(|window| window == text.as_bytes());
                assert!(!found, "`{text}` is in {}", path.display());
            }
        }
    }
}

/// Returns whether any process of this machine, confined or not, has exactly this argument.
pub(crate) fn is_process_argument(argument: &str) -> bool {
    let entries = fs::read_dir("/proc").expect("readable").flatten();
    let process_entries = entries.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
    // A process may have ended since the listing.
    let mut command_lines = process_entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    command_lines.any(|line| line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes()))
}

/// Returns the maximum length of the text of one result under the shipped policy, in bytes.
pub(crate) fn output_limit() -> usize {
    usize::try_from(DEFAULT_MAX_OUTPUT_BYTES).expect("fits into the memory")
}

/// Formats a number as results show it.
pub(crate) fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|part| str::from_utf8(part).expect("ASCII")).collect();
    parts.join(",")
}
