//! A store and a server, workers, and the runs that they drive.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use portcullis_agent::{AgentConfig, AgentLoop, AgentRunResult, ExecutionStrategy};
use portcullis_runs::{
    Continuation, ModelIdentity, RunDriver, RunExport, RunId, RunSubject, Runs, StepParts, Stepper,
    StoredApprover, StoredExecutor,
    store::{RunStore, SqliteOptions, open_sqlite},
};
use portcullis_temporal::{
    AgentRun, Placement, RunOutcome, RunStatusReport, RunWorker, WorkerSettings, connect,
};
use portcullis_tools::{CallStartListener, Caller, RegistryExecutor, approval::Approver};
use portcullis_types::{CancellationToken, Message};
use serde_json::{Value, json};
use tempfile::TempDir;
use temporalio_client::{
    Client, ClientOptions, WorkflowFetchHistoryOptions, WorkflowGetResultOptions, WorkflowHandle,
    WorkflowQueryOptions, WorkflowSignalOptions, WorkflowStartOptions,
};
use temporalio_common::{
    data_converters::{PayloadConverter, RawValue},
    protos::temporal::api::history::v1::{HistoryEvent, history_event::Attributes},
};
use temporalio_sdk::workflows::WorkflowImplementation;

use crate::{
    scripts::Scripts,
    server::{NAMESPACE, Server},
    tools::{ALL, registry},
};

/// The task queue of the workers.
pub(crate) const QUEUE: &str = "agents";

/// How long a test waits for the end of a run on a machine under load.
const TEST_TIMEOUT: Duration = Duration::from_secs(900);

/// The agent and the workspace of all runs.
const AGENT: &str = "agent";
const WORKSPACE: &str = "/work";

/// A handle to a workflow.
pub(crate) type Handle = WorkflowHandle<Client, <AgentRun as WorkflowImplementation>::Run>;

/// Everything that outlives a worker.
pub(crate) struct World {
    pub(crate) server: Server,
    folder: TempDir,
    pub(crate) store: Arc<dyn RunStore>,
    pub(crate) client: Client,
}

/// A worker in a separate thread. Dropping this value stops it.
pub(crate) struct WorkerThread {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl World {
    /// Creates a world without workers, or returns `None` if there is no server.
    pub(crate) async fn new() -> Option<Self> {
        Self::with(Server::start()?).await
    }

    pub(crate) async fn with(server: Server) -> Option<Self> {
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(private).tempdir().expect("a folder");
        let store = open_store(folder.path()).await;
        // A server that listens may need a moment before it answers.
        let address = server.address();
        let connection = wait_for_some(async || connect(&address).await.ok()).await;
        let client = Client::new(connection, ClientOptions::new(NAMESPACE).build()).expect("a client");
        Some(Self { server, folder, store, client })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a worker with all tools.
    pub(crate) fn worker(&self) -> WorkerThread {
        self.worker_with(QUEUE, &ALL, &[])
    }

    pub(crate) fn worker_with(
        &self,
        queue: &str,
        tools: &'static [&'static str],
        placements: &[&str],
    ) -> WorkerThread {
        let placements = placements.iter().map(|text| text.parse().expect("a placement")).collect();
        WorkerThread::start(
            self.server.target(),
            self.folder().to_owned(),
            queue.to_owned(),
            tools,
            placements,
        )
    }

    /// Starts the workflow of a new run.
    pub(crate) async fn start(&self, name: &str, input: Value) -> Handle {
        let options = WorkflowStartOptions::new(QUEUE, name).build();
        self.client.start_workflow(AgentRun::run, raw(&input), options).await.expect("starts")
    }

    /// Like [`Self::start`], for an owned name.
    pub(crate) async fn start_owned(&self, name: String, input: Value) -> Handle {
        self.start(&name, input).await
    }

    /// Drives a new run to its end.
    pub(crate) async fn drive(&self, name: &str, prompt: &str) -> (RunOutcome, Handle) {
        let handle = self.start(name, json!({"prompt": prompt})).await;
        (result(&handle).await, handle)
    }

    /// Returns the export of a run without times and ids.
    pub(crate) async fn export(&self, run: &str) -> String {
        let id: RunId = run.parse().expect("an id");
        let export = RunExport::read(&*self.store, &id).await.expect("read");
        without_times_and_ids(&serde_json::to_string(&export).expect("JSON"), run)
    }

    /// Drives a run in this process, as the command line does. Returns its end and its id.
    pub(crate) async fn drive_here(
        &self,
        prompt: &str,
        approver: Option<Arc<dyn Approver>>,
    ) -> (AgentRunResult, RunId) {
        let id = RunId::random().expect("random bytes");
        let subject = RunSubject { id: id.clone(), agent: AGENT.to_owned(), workspace: WORKSPACE.to_owned() };
        let runs = Runs::new(Arc::clone(&self.store), RunDriver::start(self.folder()).expect("starts"));
        runs.add(subject.clone(), Message::user(prompt)).await.expect("added");
        let registry = registry(self.folder(), &ALL);
        let caller = Caller::new(AGENT, id.as_str());
        let run = runs.drive(&subject, Continuation::Resume, Arc::clone(&registry), caller.clone()).await;
        let run = run.expect("driven");
        let mut template = caller;
        template.start_listener = Some(Arc::clone(&run) as Arc<dyn CallStartListener>);
        template.approver =
            Some(approver.unwrap_or_else(|| {
                Arc::new(StoredApprover::in_store(Arc::clone(&run))) as Arc<dyn Approver>
            }));
        let executor = RegistryExecutor::new(registry, template).with_continued_run();
        let mut config = AgentConfig::new(AGENT);
        config.run_id = Some(id.to_string());
        config.strategy = ExecutionStrategy::Sequential;
        let executor = StoredExecutor::new(executor, Arc::clone(&run));
        let scripts = Scripts::new(self.folder().to_owned());
        let mut agent = AgentLoop::new(config, (), Arc::clone(&run), scripts, executor);
        let handle = agent.handle();
        let state = run.take_resume_point(&handle).expect("the resume point is taken once");
        let _lease = run.keep_lease(handle);
        (agent.resume(state).await, id)
    }

    /// Returns the events of a workflow's history.
    pub(crate) async fn history(&self, handle: &Handle) -> Vec<HistoryEvent> {
        let history = handle.fetch_history(WorkflowFetchHistoryOptions::default());
        history.into_events().await.expect("read")
    }

    /// Returns the types of a workflow's activities, in the order in which they were scheduled.
    pub(crate) async fn activities(&self, handle: &Handle) -> Vec<String> {
        let events = self.history(handle).await;
        let name = |event: HistoryEvent| match event.attributes {
            Some(Attributes::ActivityTaskScheduledEventAttributes(scheduled)) => {
                scheduled.activity_type.map(|kind| kind.name)
            }
            _ => None,
        };
        events.into_iter().filter_map(name).collect()
    }
}

/// Waits for the result of a workflow.
pub(crate) async fn result(handle: &Handle) -> RunOutcome {
    let waiting = handle.get_result(WorkflowGetResultOptions::default());
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("an end").expect("a result")
}

/// Asks a workflow for its status.
pub(crate) async fn status(handle: &Handle) -> RunStatusReport {
    handle.query(AgentRun::status, (), WorkflowQueryOptions::default()).await.expect("a status")
}

/// Waits until the status is as wanted.
pub(crate) async fn wait_for(handle: &Handle, wanted: impl Fn(&RunStatusReport) -> bool) -> RunStatusReport {
    wait_for_some(async || Some(status(handle).await).filter(|status| wanted(status))).await
}

/// Asks repeatedly until there is an answer.
pub(crate) async fn wait_for_some<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, asking).await.expect("an answer")
}

pub(crate) async fn steer(handle: &Handle, input: Value) {
    handle.signal(AgentRun::steer, raw(&input), WorkflowSignalOptions::default()).await.expect("signalled");
}

pub(crate) async fn approve(handle: &Handle, input: Value) {
    handle.signal(AgentRun::approve, raw(&input), WorkflowSignalOptions::default()).await.expect("signalled");
}

pub(crate) async fn cancel(handle: &Handle) {
    handle
        .signal(AgentRun::cancel, raw(&Value::Null), WorkflowSignalOptions::default())
        .await
        .expect("signalled");
}

/// Returns a JSON payload.
pub(crate) fn raw(value: &Value) -> RawValue {
    RawValue::from_value(value, &PayloadConverter::default())
}

/// Opens the store in a folder.
pub(crate) async fn open_store(folder: &Path) -> Arc<dyn RunStore> {
    open_sqlite(&folder.join("runs.db"), SqliteOptions::default()).await.expect("a store")
}

/// Creates a stepper for a process.
pub(crate) async fn stepper(folder: &Path, tools: &[&'static str]) -> Arc<Stepper> {
    let store = open_store(folder).await;
    let runs = Runs::new(store, RunDriver::start(folder).expect("starts"));
    let parts = StepParts {
        registry: registry(folder, tools),
        provider: Arc::new(Scripts::new(folder.to_owned())),
        model: ModelIdentity { name: "m".to_owned(), address: None },
        config: AgentConfig::new(AGENT),
        caller: Caller::new(AGENT, ""),
        workspace: WORKSPACE.to_owned(),
        labels: Vec::new(),
        hint: None,
        on_approval_request: None,
    };
    Arc::new(Stepper::new(runs, parts))
}

/// Takes tasks until it is stopped.
pub(crate) async fn work(
    target: String,
    folder: PathBuf,
    queue: String,
    tools: &[&'static str],
    placements: Vec<Placement>,
    stop: &CancellationToken,
) {
    let connection = connect(&target.parse().expect("an address")).await.expect("connects");
    let settings = WorkerSettings { namespace: NAMESPACE.to_owned(), task_queue: queue, placements };
    let stepper = stepper(&folder, tools).await;
    let mut worker = RunWorker::new(connection, settings, stepper).await.expect("a worker");
    worker.run(stop).await.expect("works");
}

impl WorkerThread {
    fn start(
        target: String,
        folder: PathBuf,
        queue: String,
        tools: &'static [&'static str],
        placements: Vec<Placement>,
    ) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
            runtime.block_on(work(target, folder, queue, tools, placements, &stopped));
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.stop.cancel();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("a thread").expect("the worker ended in order");
        }
    }
}

/// The keys whose values are times.
const TIMES: [&str; 7] = ["begun", "finished", "created", "updated", "expires", "decided", "elapsed_ms"];

/// The key of a call's duration.
const DURATION: &str = "duration_us";

/// Replaces each time by 0, and each id of the run or of a question by one name. All other bytes stay.
fn without_times_and_ids(export: &str, run: &str) -> String {
    let mut text = export.replace(run, "RUN");
    for key in TIMES.iter().chain([&DURATION]) {
        let key = format!("\"{key}\":");
        let parts: Vec<&str> = text.split(&key).collect();
        let rest = |part: &&str| match part.trim_start_matches(|c: char| c.is_ascii_digit()) {
            // The value is null, not a time.
            rest if rest.len() == part.len() => rest.to_owned(),
            rest => format!("0{rest}"),
        };
        let rests: Vec<String> = parts.iter().skip(1).map(rest).collect();
        text = [vec![parts[0].to_owned()], rests].concat().join(&key);
    }
    let parts: Vec<&str> = text.split("approval_").collect();
    let rest = |part: &&str| part.trim_start_matches(|c: char| c.is_ascii_hexdigit()).to_owned();
    let rests: Vec<String> = parts.iter().skip(1).map(rest).collect();
    [vec![parts[0].to_owned()], rests].concat().join("QUESTION")
}
