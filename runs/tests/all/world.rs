//! A store, tools with countable effects, and processes that drive a run.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use portcullis_agent::{AgentConfig, AgentLoop, AgentRunResult};
use portcullis_runs::{
    Continuation, ModelIdentity, RunDriver, RunError, RunId, RunSubject, Runs, StepParts, Stepper,
    StoredApprover, StoredExecutor, StoredExternalCalls, all_rows,
    store::{RunStore, SqliteOptions, StoreError, open_sqlite},
};
use portcullis_tools::{
    CallStartListener, Caller, ExternalTool, RegistryExecutor, ToolRegistry,
    approval::{ApproveAll, Approver},
    policy::{DEFAULT_POLICY, LoadOptions, PolicySource, WorkspaceSecurityPolicy},
};
use portcullis_types::{
    FunctionDecl, JsonSchema, Message, SafetyTier, SandboxTier, Tool, ToolArgs, ToolContext, ToolError,
    ToolOutput,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::model::{Model, Turn};

const POLICY: &str = "\n[tools.note]\nenabled = true\napproval = \"allow\"\n\
    [tools.look]\nenabled = true\napproval = \"allow\"\n\
    [tools.ask]\nenabled = true\napproval = \"ask\"\n";

/// How long a run waits for a result that a test submits.
const RESULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between two attempts of [`eventually`].
const PAUSE: Duration = Duration::from_millis(5);

/// The maximum time that a test waits for something that must happen.
const TEST_TIMEOUT: Duration = Duration::from_mins(2);

/// Repeats an attempt until it returns a value. `what` completes the sentence "waited until …".
///
/// # Panics
/// If there is no value within [`TEST_TIMEOUT`].
pub(crate) async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let attempts = async {
        loop {
            if let Some(value) = attempt().await {
                return value;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let value = tokio::time::timeout(TEST_TIMEOUT, attempts).await;
    value.unwrap_or_else(|_elapsed| panic!("waited more than {TEST_TIMEOUT:?} until {what}"))
}

/// The result of driving a run, or `None` while the dead process still has the lease.
pub(crate) fn unless_leased<T>(driven: Result<T, RunError>) -> Option<Result<T, RunError>> {
    match driven {
        Err(RunError::Store(StoreError::Leased { .. })) => None,
        driven => Some(driven),
    }
}

/// A tool that records its arguments: an effect that can be counted.
struct Noting {
    name: &'static str,
    tier: SafetyTier,
    notes: Arc<Mutex<Vec<String>>>,
    /// The effect during which the process dies.
    dies_in: Option<(usize, Arc<Notify>)>,
}

#[async_trait]
impl Tool for Noting {
    fn schema(&self) -> FunctionDecl {
        let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        FunctionDecl {
            name: self.name.to_owned(),
            description: None,
            parameters: JsonSchema::new(parameters),
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn safety_tier(&self) -> SafetyTier {
        self.tier
    }

    async fn execute(&self, args: &str) -> Result<String, ToolError> {
        let count = {
            let mut notes = self.notes.lock().expect("not poisoned");
            notes.push(format!("{} {args}", self.name));
            notes.len()
        };
        if let Some((number, died)) = &self.dies_in
            && *number == count
        {
            died.notify_one();
            std::future::pending::<()>().await;
        }
        Ok("noted".to_owned())
    }

    async fn call(&self, _ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        self.execute(args.text()).await.map(ToolOutput::text)
    }
}

/// Everything that outlives a process.
pub(crate) struct World {
    state: TempDir,
    pub(crate) store: Arc<dyn RunStore>,
    pub(crate) subject: RunSubject,
    notes: Arc<Mutex<Vec<String>>>,
    turns: Vec<Turn>,
    /// How long a run waits for the result of `confirm`.
    pub(crate) result_timeout: Duration,
}

impl World {
    /// Creates a run with a prompt in SQLite. No process has begun it.
    pub(crate) async fn new(turns: Vec<Turn>) -> Self {
        Self::in_store(turns, None).await
    }

    /// Same as `new`, in a store that other runs may use too.
    pub(crate) async fn in_store(turns: Vec<Turn>, store: Option<Arc<dyn RunStore>>) -> Self {
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let state = tempfile::Builder::new().permissions(private).tempdir().expect("a folder");
        let file = state.path().join("runs.db");
        let store = match store {
            Some(store) => store,
            None => open_sqlite(&file, SqliteOptions::default()).await.expect("a store"),
        };
        let id = RunId::random().expect("random bytes");
        let subject = RunSubject { id, agent: "agent".to_owned(), workspace: "/work".to_owned() };
        let world =
            Self { state, store, subject, notes: Arc::default(), turns, result_timeout: RESULT_TIMEOUT };
        world.process(None).add(world.subject.clone(), Message::user("Do it.")).await.expect("added");
        world
    }

    /// Returns the runs as a new process sees them.
    pub(crate) fn process(&self, store: Option<Arc<dyn RunStore>>) -> Runs {
        let store = store.unwrap_or_else(|| Arc::clone(&self.store));
        Runs::new(store, RunDriver::start(self.state.path()).expect("starts"))
    }

    fn registry(&self, dies_in: Option<(usize, &Arc<Notify>)>) -> Arc<ToolRegistry> {
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "test", text: &format!("{DEFAULT_POLICY}{POLICY}") },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        });
        let mut builder = ToolRegistry::builder().policy(policy.expect("loads"));
        for (name, tier) in [
            ("note", SafetyTier::SideEffecting),
            ("look", SafetyTier::ReadOnly),
            ("ask", SafetyTier::SideEffecting),
        ] {
            let notes = Arc::clone(&self.notes);
            let dies_in = dies_in.map(|(effect, died)| (effect, Arc::clone(died)));
            builder = builder.tool(Noting { name, tier, notes, dies_in });
        }
        for (name, waits) in [("confirm", true), ("defer", false)] {
            let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}});
            let decl = FunctionDecl {
                name: name.to_owned(),
                description: None,
                parameters: JsonSchema::new(parameters),
            };
            builder = builder.external_tool(ExternalTool {
                waits,
                timeout: self.result_timeout,
                ..ExternalTool::new(decl)
            });
        }
        Arc::new(builder.state(self.state.path()).build().expect("builds"))
    }

    /// Creates a stepper as in a new process.
    pub(crate) fn stepper(&self, store: Option<Arc<dyn RunStore>>) -> Stepper {
        let mut caller = Caller::new("agent", "");
        caller.approver = Some(Arc::new(ApproveAll));
        let parts = StepParts {
            registry: self.registry(None),
            provider: Arc::new(Model(self.turns.clone())),
            model: ModelIdentity { name: "m".to_owned(), address: None },
            config: AgentConfig::new("agent"),
            caller,
            workspace: self.subject.workspace.clone(),
            labels: Vec::new(),
            hint: None,
            on_approval_request: None,
        };
        Stepper::new(self.process(store), parts)
    }

    /// Drives the run in a new process until it ends. The process dies during the tool's effect with this
    /// number.
    pub(crate) async fn drive(
        &self,
        store: Option<Arc<dyn RunStore>>,
        next: Continuation,
        dies_in: Option<(usize, &Arc<Notify>)>,
        asks_elsewhere: bool,
    ) -> Result<AgentRunResult, RunError> {
        let (runs, registry) = (self.process(store), self.registry(dies_in));
        let caller = Caller::new("agent", self.subject.id.as_str());
        let run = runs.drive(&self.subject, next, Arc::clone(&registry), caller.clone()).await?;
        let mut template = caller;
        template.start_listener = Some(Arc::clone(&run) as Arc<dyn CallStartListener>);
        template.external_calls = Some(Arc::new(StoredExternalCalls::new(Arc::clone(&run))));
        template.approver = Some(if asks_elsewhere {
            Arc::new(StoredApprover::in_store(Arc::clone(&run))) as Arc<dyn Approver>
        } else {
            Arc::new(ApproveAll)
        });
        let executor = RegistryExecutor::new(registry, template).with_continued_run();
        let mut config = AgentConfig::new("agent");
        config.run_id = Some(self.subject.id.to_string());
        let executor = StoredExecutor::new(executor, Arc::clone(&run));
        let model = Model(self.turns.clone());
        let mut agent = AgentLoop::new(config, (), Arc::clone(&run), model, executor);
        let handle = agent.handle();
        let state = run.take_resume_point(&handle).expect("the resume point is taken once");
        let _lease = run.keep_lease(handle);
        Ok(agent.resume(state).await)
    }

    /// Drives the run in a new process after the first has died. The first is simulated, so its tasks are
    /// dropped a moment later than those of a killed process.
    pub(crate) async fn drive_after_death(
        &self,
        next: Continuation,
        asks_elsewhere: bool,
    ) -> Result<AgentRunResult, RunError> {
        eventually("the dead process's lease is free", async || {
            unless_leased(self.drive(None, next.clone(), None, asks_elsewhere).await)
        })
        .await
    }

    /// Returns the effects so far, in order.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.lock().expect("not poisoned").clone()
    }

    /// Returns the stored conversation.
    pub(crate) async fn messages(&self) -> Vec<Message> {
        let id = self.subject.id.as_str();
        let stored = all_rows(|request| self.store.messages(id, request)).await.expect("listed");
        let parse = |text: &str| serde_json::from_str(text).expect("a message");
        stored.iter().map(|message| parse(message.body.as_str())).collect()
    }
}
