//! Test doubles for the loop: a model that follows a script, tools whose names define their behaviour, and an
//! emitter that records all events.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use portcullis_types::{
    FunctionDecl, JsonSchema, Message, MessageRole, SafetyTier, ToolCall, ToolError, ToolEvent, ToolOutput,
    ToolResult, async_trait,
};

use super::*;

/// A step of a script.
#[derive(Debug, Clone)]
pub(super) enum ScriptStep {
    Delta(Delta),
    Fail(ProviderErrorKind),
    Wait(Duration),
    Panic,
    /// The stream neither yields another item nor ends.
    Hang,
}

/// A model that follows a script, one entry for each turn. After the last entry it answers `done`.
#[derive(Clone, Default)]
pub(super) struct Script {
    turns: Arc<Mutex<VecDeque<Vec<ScriptStep>>>>,
    pub(super) requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl Script {
    pub(super) fn new(turns: impl IntoIterator<Item = Vec<ScriptStep>>) -> Self {
        Self { turns: Arc::new(Mutex::new(turns.into_iter().collect())), requests: Arc::default() }
    }

    pub(super) fn request_count(&self) -> usize {
        self.requests.lock().expect("not poisoned").len()
    }
}

#[async_trait]
impl Provider for Script {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        assert_eq!(transcript::find_fault(&request.messages), None, "{:#?}", request.messages);
        self.requests.lock().expect("not poisoned").push(request);
        let turn = self.turns.lock().expect("not poisoned").pop_front();
        let mut steps = turn.unwrap_or_else(|| text_answer("done"));
        if let Some(ScriptStep::Fail(kind)) = steps.first() {
            return Err(ProviderError::new(*kind, "as the script says"));
        }
        steps.reverse();
        let steps = stream::unfold(steps, |mut steps| async move {
            loop {
                let item = match steps.pop()? {
                    ScriptStep::Delta(delta) => Ok(delta),
                    ScriptStep::Fail(kind) => Err(ProviderError::new(kind, "as the script says")),
                    ScriptStep::Wait(time) => {
                        tokio::time::sleep(time).await;
                        continue;
                    }
                    ScriptStep::Panic => panic!("the script says so"),
                    ScriptStep::Hang => std::future::pending().await,
                };
                return Some((item, steps));
            }
        });
        Ok(steps.boxed())
    }
}

/// An answer without calls.
pub(super) fn text_answer(text: &str) -> Vec<ScriptStep> {
    vec![ScriptStep::Delta(Delta::Text(text.into())), ScriptStep::Delta(Delta::End(StopReason::Stop))]
}

/// An answer with calls: id, tool, arguments.
pub(super) fn ask_for(calls: &[(&str, &str, &str)]) -> Vec<ScriptStep> {
    let delta = |(nth, (id, tool, arguments)): (usize, &(&str, &str, &str))| {
        ScriptStep::Delta(Delta::ToolCall(ToolCallDelta {
            index: nth as u64,
            id: Some((*id).to_owned()),
            name: Some((*tool).to_owned()),
            arguments: Some((*arguments).to_owned()),
        }))
    };
    let end = ScriptStep::Delta(Delta::End(StopReason::ToolCalls));
    calls.iter().enumerate().map(delta).chain([end]).collect()
}

/// Tools whose names and arguments define their behaviour. Tools with the prefix `r` are read-only, tools
/// with the prefix `u` declare no tier, and tools with the prefix `w` have side effects.
///
/// - `…_sleep` waits as many milliseconds as its argument `ms` says, and stops when it is cancelled.
/// - `…_deaf` runs for 100 s whether it is cancelled or not, `…_panic` panics, `…_fail` fails.
/// - `…_echo` returns its arguments, `…_liar` another call's result, `…_loud` its result after 1000 updates.
#[derive(Clone, Default)]
pub(super) struct Tools {
    /// The starts and ends of calls, in order.
    pub(super) log: Arc<Mutex<Vec<String>>>,
    running: Arc<AtomicUsize>,
    pub(super) max_running: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    /// Whether the tools promise never to block.
    pub(super) never_blocks: Arc<AtomicBool>,
    /// The runs whose end was reported.
    pub(super) ended_runs: Arc<Mutex<Vec<String>>>,
}

pub(super) const KINDS: [&str; 7] = ["sleep", "deaf", "panic", "fail", "echo", "liar", "loud"];

impl Tools {
    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().expect("not poisoned").clone()
    }

    /// Returns the number of calls that began.
    pub(super) fn begun_count(&self) -> usize {
        self.log().iter().filter(|line| line.starts_with("begin")).count()
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    fn note(&self, what: &str, call: &str) {
        self.log.lock().expect("not poisoned").push(format!("{what} {call}"));
    }
}

/// Counts a running call until it is dropped.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl ToolExecutor for Tools {
    fn offers(&self) -> Vec<OfferedTool> {
        let tiers = [("r", Some(SafetyTier::ReadOnly)), ("w", Some(SafetyTier::SideEffecting)), ("u", None)];
        let offer = |tier: Option<SafetyTier>, name: String| OfferedTool {
            decl: FunctionDecl { name, description: None, parameters: JsonSchema::empty_object() },
            label: None,
            tier,
        };
        tiers
            .into_iter()
            .flat_map(|(prefix, tier)| KINDS.map(|kind| offer(tier, format!("{prefix}_{kind}"))))
            .collect()
    }

    async fn execute(&self, call: ToolCall, context: &CallContext) -> ToolResult {
        let running_count = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let _running = Running(Arc::clone(&self.running));
        self.max_running.fetch_max(running_count, Ordering::SeqCst);
        self.note("begin", &call.id);
        let report_event = |event: ToolEvent| {
            if let Some(listener) = &context.on_event {
                listener(&event);
            }
        };
        let (call_id, tool) = (call.id.clone(), call.tool.clone());
        // The registry also sends this event. The loop must not report it twice.
        report_event(ToolEvent::Requested {
            call_id: call_id.clone(),
            tool: tool.clone(),
            arguments: String::new(),
        });
        report_event(ToolEvent::Started { call_id: call_id.clone(), tool: tool.clone() });
        let outcome = match call.tool.split_once('_').map(|(_, kind)| kind) {
            Some("sleep") => {
                let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap_or_default();
                let time = Duration::from_millis(arguments["ms"].as_u64().unwrap_or(10));
                tokio::select! {
                    () = context.cancel.cancelled() => Err(ToolError::cancelled("the tool heard of it")),
                    () = tokio::time::sleep(time) => Ok(ToolOutput::text("slept")),
                }
            }
            Some("deaf") => {
                tokio::time::sleep(Duration::from_secs(100)).await;
                Ok(ToolOutput::text("what?"))
            }
            Some("panic") => panic!("as asked"),
            Some("fail") => Err(ToolError::invalid_arguments("missing required field 'path' in arguments")),
            Some("loud") => {
                for nth in 0..1000 {
                    let partial = ToolOutput::text(nth.to_string());
                    report_event(ToolEvent::Update { call_id: call_id.clone(), partial });
                    report_event(ToolEvent::Update {
                        call_id: "forged".into(),
                        partial: ToolOutput::text("x"),
                    });
                }
                Ok(ToolOutput::text("loud"))
            }
            Some("echo") => Ok(ToolOutput::text(call.arguments.clone())),
            Some("liar") => Ok(ToolOutput::text("mine")),
            _ => Err(ToolError::not_found(format!("there is no tool `{}`", call.tool))),
        };
        self.note("end", &call.id);
        let call_id = if call.tool.ends_with("liar") { "another".to_owned() } else { call_id };
        ToolResult {
            call_id,
            tool,
            outcome: outcome.into(),
            details: serde_json::Value::Null,
            truncated: false,
            original_bytes: 0,
            duration: Duration::ZERO,
        }
    }

    fn refuse(&self, call: ToolCall, error: ToolError, _: &CallContext) -> ToolResult {
        self.refused.fetch_add(1, Ordering::SeqCst);
        ToolResult::without_run(call, error)
    }

    fn never_blocks(&self) -> bool {
        self.never_blocks.load(Ordering::SeqCst)
    }

    fn run_ended(&self, agent_id: &str, run_id: &str) {
        self.ended_runs.lock().expect("not poisoned").push(format!("{agent_id} {run_id}"));
    }
}

/// Records every event.
#[derive(Clone, Default)]
pub(super) struct EventRecorder(pub(super) Arc<Mutex<Vec<AgentEvent>>>);

impl EventRecorder {
    pub(super) fn events(&self) -> Vec<AgentEvent> {
        self.0.lock().expect("not poisoned").clone()
    }
}

#[async_trait]
impl EventEmitter for EventRecorder {
    async fn emit(&self, event: AgentEvent) {
        self.emit_now(event);
    }

    fn emit_now(&self, event: AgentEvent) {
        self.0.lock().expect("not poisoned").push(event);
    }
}

/// An agent with test doubles, and access to them.
pub(super) struct TestAgent {
    pub(super) agent: AgentLoop,
    pub(super) script: Script,
    pub(super) tools: Tools,
    pub(super) store: InMemoryMessageStore,
    pub(super) notes: EventRecorder,
}

impl TestAgent {
    pub(super) fn new(turns: impl IntoIterator<Item = Vec<ScriptStep>>) -> Self {
        Self::with_config(AgentConfig::new("agent"), turns)
    }

    pub(super) fn with_config(config: AgentConfig, turns: impl IntoIterator<Item = Vec<ScriptStep>>) -> Self {
        let (script, tools) = (Script::new(turns), Tools::default());
        let (store, notes) = (InMemoryMessageStore::new(), EventRecorder::default());
        let agent = AgentLoop::new(config, notes.clone(), store.clone(), script.clone(), tools.clone());
        Self { agent, script, tools, store, notes }
    }

    /// Creates an agent with a stream of events. The test itself adds the events that it reads to the notes.
    pub(super) fn with_channel(
        capacity: usize,
        config: AgentConfig,
        turns: impl IntoIterator<Item = Vec<ScriptStep>>,
    ) -> (Self, EventReceiver) {
        let (sender, receiver) = event_channel(NonZeroUsize::new(capacity).expect("not 0"));
        let (script, tools) = (Script::new(turns), Tools::default());
        let (store, notes) = (InMemoryMessageStore::new(), EventRecorder::default());
        let agent = AgentLoop::new(config, sender, store.clone(), script.clone(), tools.clone());
        (Self { agent, script, tools, store, notes }, receiver)
    }

    /// Asks `go`, and checks the invariants of every run: a conversation that providers accept, one result
    /// for each call, one start and one end of each in the events, and the run's end last.
    pub(super) async fn run(&mut self) -> AgentRunResult {
        let run = self.agent.run("go").await;
        self.check(&run);
        run
    }

    pub(super) fn check(&self, run: &AgentRunResult) {
        let messages = self.store.messages();
        assert_eq!(transcript::find_fault(&messages), None, "{messages:#?}");
        let events = self.notes.events();
        assert_eq!(events.last(), Some(&AgentEvent::AgentEnd { end: run.end.clone() }));
        let mut open_calls: Vec<&str> = Vec::new();
        for event in &events {
            match event {
                AgentEvent::Tool(ToolEvent::Requested { call_id, .. }) => {
                    assert!(!open_calls.contains(&call_id.as_str()), "asked for twice: {call_id}");
                    open_calls.push(call_id);
                }
                AgentEvent::Tool(ToolEvent::ArgumentsDelta { .. }) => {}
                AgentEvent::Tool(
                    ToolEvent::Started { call_id, .. }
                    | ToolEvent::Update { call_id, .. }
                    | ToolEvent::Progress { call_id, .. },
                ) => assert!(open_calls.contains(&call_id.as_str()), "{call_id} is not open"),
                AgentEvent::ToolEnd { result } => {
                    let position = open_calls.iter().position(|id| *id == result.call_id).expect("asked for");
                    open_calls.remove(position);
                }
                AgentEvent::TurnEnd { .. } | AgentEvent::AgentEnd { .. } => {
                    assert!(open_calls.is_empty(), "without end: {open_calls:?}");
                }
                _ => {}
            }
        }
        let requested_calls = messages.iter().flat_map(|message| &message.tool_calls).count();
        let ends = events.iter().filter(|event| matches!(event, AgentEvent::ToolEnd { .. })).count();
        assert_eq!(requested_calls, ends);
        // The executor gets each call exactly once.
        assert_eq!(requested_calls, self.tools.begun_count() + self.tools.refused.load(Ordering::SeqCst));
    }

    /// Returns the results in the conversation, as the model reads them.
    pub(super) fn results(&self) -> Vec<String> {
        let messages = self.store.messages();
        let results = messages.iter().filter(|message| message.role == MessageRole::Tool);
        results.map(Message::text).collect()
    }
}
