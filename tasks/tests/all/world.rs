//! A folder of tasks, and a scripted runner of calls.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use portcullis_tasks::{
    CallStartRecorder, TaskCall, TaskCallRunner, TaskCallStart, TaskProcessor, TaskReport, TaskRunnerResult,
    TaskStates,
};
use portcullis_types::{CancellationToken, ToolError, ToolOutput, ToolResult};
use tempfile::TempDir;

/// Returns a call as a block, with this text as its only parameter.
pub(crate) fn call(tool: &str, text: &str) -> String {
    let call = serde_json::json!({ "tool_call": { "name": tool, "parameters": { "text": text } } });
    format!("```json\n{call}\n```\n")
}

/// The action of a scripted runner after `before` has accepted the call.
pub(crate) type Script = Arc<dyn Fn(&TaskCall) -> Result<ToolOutput, ToolError> + Send + Sync>;

/// The point at which a runner stops forever, as if the process had died there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    BeforeBegin,
    AfterBegin,
    AfterEffect,
}

/// A runner that counts the effects of calls.
pub(crate) struct Runner {
    pub(crate) script: Script,
    /// The effects, as `tool text`, in order.
    pub(crate) effects: Mutex<Vec<String>>,
    pub(crate) seen: Mutex<Vec<TaskCall>>,
    /// The tools whose calls need an approval.
    pub(crate) asks: BTreeSet<&'static str>,
    pub(crate) may_repeat: bool,
    pub(crate) death: Option<Death>,
    /// Runs when a call was chosen, before it begins.
    pub(crate) before_begin: Option<Box<dyn Fn() + Send + Sync>>,
    pub(crate) running: AtomicUsize,
    pub(crate) most_running: AtomicUsize,
}

impl Runner {
    pub(crate) fn new(
        script: impl Fn(&TaskCall) -> Result<ToolOutput, ToolError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            script: Arc::new(script),
            effects: Mutex::default(),
            seen: Mutex::default(),
            asks: BTreeSet::new(),
            may_repeat: false,
            death: None,
            before_begin: None,
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
        }
    }

    /// Creates a runner whose calls succeed and return their text.
    pub(crate) fn echo() -> Self {
        Self::new(|call| Ok(ToolOutput::text(text_of(call))))
    }

    pub(crate) fn effects(&self) -> Vec<String> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(crate) fn text_of(call: &TaskCall) -> String {
    let arguments: serde_json::Value = serde_json::from_str(&call.call.arguments).expect("JSON");
    arguments["text"].as_str().unwrap_or_default().to_owned()
}

#[async_trait]
impl TaskCallRunner for Runner {
    async fn run(&self, call: TaskCall, before: Arc<dyn CallStartRecorder>) -> TaskRunnerResult {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
        let result = |outcome: Result<ToolOutput, ToolError>| {
            let mut result = ToolResult::without_run(call.call.clone(), ToolError::failed("not run"));
            result.outcome = outcome.into();
            TaskRunnerResult::Ended(result)
        };
        if call.call.tool == "unknown" {
            return result(Err(ToolError::not_found("there is no tool `unknown`")));
        }
        let binding = format!("{} {}", call.call.tool, call.call.arguments);
        if self.asks.contains(&*call.call.tool) && call.approved.as_ref() != Some(&binding) {
            return TaskRunnerResult::NeedsApproval {
                binding,
                question: format!("may `{}` run?", call.call.tool),
            };
        }
        if self.death == Some(Death::BeforeBegin) {
            std::future::pending::<()>().await;
        }
        if let Some(action) = &self.before_begin {
            action();
        }
        let beginning = TaskCallStart { may_repeat: self.may_repeat, labels: ["web".to_owned()].into() };
        if let Err(error) = before.begin(beginning).await {
            return result(Err(error));
        }
        if self.death == Some(Death::AfterBegin) {
            std::future::pending::<()>().await;
        }
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        let effect = format!("{} {}", call.call.tool, text_of(&call));
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).push(effect);
        // Let other calls start.
        for _turn in 0..50 {
            tokio::task::yield_now().await;
        }
        let script = Arc::clone(&self.script);
        let scripted = call.clone();
        let outcome = tokio::task::spawn_blocking(move || script(&scripted)).await.expect("the script ends");
        self.running.fetch_sub(1, Ordering::SeqCst);
        if self.death == Some(Death::AfterEffect) {
            std::future::pending::<()>().await;
        }
        result(outcome)
    }
}

/// A folder of tasks.
pub(crate) struct World {
    pub(crate) dir: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { dir: tempfile::tempdir().expect("a folder") };
        for state in TaskStates::default().folders() {
            fs::create_dir(world.dir.path().join(state)).expect("makes");
        }
        world
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).expect("writes");
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).expect("reads")
    }

    /// Moves a file, as a person does.
    pub(crate) fn moved(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).expect("moves");
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.path(file).exists()
    }

    pub(crate) fn processor(&self, runner: &Arc<Runner>) -> TaskProcessor {
        TaskProcessor::open(self.dir.path(), TaskStates::default(), Arc::clone(runner) as _).expect("opens")
    }

    pub(crate) async fn run(&self, runner: &Arc<Runner>) -> Vec<TaskReport> {
        self.processor(runner).run_once(&CancellationToken::new()).await.expect("runs")
    }

    /// Runs until the runner stops forever, like a process that is killed at that point.
    pub(crate) async fn run_and_die(&self, runner: &Arc<Runner>) {
        let (processor, cancel) = (self.processor(runner), CancellationToken::new());
        tokio::select! {
            ended = processor.run_once(&cancel) => panic!("the process was to die: {ended:?}"),
            // The paused clock advances only when all else is idle: the runner has stopped, and no file is
            // being written.
            () = tokio::time::sleep(std::time::Duration::from_secs(3_600)) => {}
        }
    }
}
