//! [`Agent`]: the agent of Yoagent, built on this project's loop and a registry.

use std::{collections::VecDeque, fmt, future::Future, mem, pin::Pin, sync::Arc};

use portcullis_agent::{
    self as agent, AgentConfig, AgentEnd, AgentHandle, AgentLoop, DEFAULT_EVENT_CAPACITY, EventReceiver,
    InMemoryMessageStore, Provider, event_channel,
};
use portcullis_tools::{
    BootstrapError, Caller, RegistryBuilder, RegistryExecutor, ToolRegistry, approval::Approver,
};
use portcullis_types::error_chain;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    provider::StreamProvider,
    types::{AgentEvent, AgentTool, ToolExecutionStrategy},
};
use crate::{IntoTool, event_formats::yoagent::YoagentEvents};

/// An agent as Yoagent builds it: a model, instructions, tools, and one conversation.
///
/// The agent's tools are native tools of a registry under the operator's policy, which is read from the usual
/// locations. The tools of [`default_tools`](super::tools::default_tools) run under the shipped policy. The
/// program's own tools run only if the policy enables them by name (`[tools.NAME] enabled = true`). There is
/// no workspace and no approver unless the program adds them: [`Agent::with_runtime`],
/// [`Agent::with_approver`].
pub struct Agent {
    provider: Arc<dyn StreamProvider>,
    system_prompt: Option<String>,
    model: String,
    api_key: String,
    strategy: ToolExecutionStrategy,
    tools: AgentTools,
    approver: Option<Arc<dyn Approver>>,
    store: InMemoryMessageStore,
    /// Held by the current run, because a conversation has one run at a time.
    run_lock: Arc<Mutex<()>>,
    handle: Option<AgentHandle>,
}

impl Agent {
    /// Creates an agent without instructions, model name, key or tools. Calls of one answer run in parallel.
    #[must_use]
    pub fn new(provider: impl StreamProvider + 'static) -> Self {
        Self {
            provider: Arc::new(provider),
            system_prompt: None,
            model: String::new(),
            api_key: String::new(),
            strategy: ToolExecutionStrategy::default(),
            tools: AgentTools::unregistered(None, Vec::new()),
            approver: None,
            store: InMemoryMessageStore::new(),
            run_lock: Arc::default(),
            handle: None,
        }
    }

    /// Sets the instructions.
    #[must_use]
    pub fn with_system_prompt(mut self, prompt: impl Into<String>) -> Self {
        self.system_prompt = Some(prompt.into());
        self
    }

    /// Sets the model's name.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = model.into();
        self
    }

    /// Sets the provider's key.
    #[must_use]
    pub fn with_api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = key.into();
        self
    }

    /// Replaces the tools. Call this before the first prompt: once the tools are registered, this also drops
    /// those of [`Agent::with_runtime`].
    #[must_use]
    pub fn with_tools(mut self, tools: Vec<Box<dyn AgentTool>>) -> Self {
        self.tools = AgentTools::unregistered(self.tools.take_runtime(), tools);
        self
    }

    /// Adds the tools of this builder to the agent's own. Call this before the first prompt. Default: none,
    /// because programs of Yoagent name no folder, and only named folders are opened.
    ///
    /// The builder of [`runtime_builder`](portcullis_tools::runtime_builder) has the tools for a workspace's files and
    /// `shell_exec`, confined by the workspace's policy. It also has the tools of
    /// [`default_tools`](super::tools::default_tools), which the agent may have as well.
    #[must_use]
    pub fn with_runtime(mut self, builder: RegistryBuilder) -> Self {
        self.tools = AgentTools::unregistered(Some(builder), self.tools.take_agent_tools());
        self
    }

    /// Sets an approver for calls that the policy asks about. Default: none, and these calls are denied.
    #[must_use]
    pub fn with_approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Sets how the calls of one answer run.
    #[must_use]
    pub fn with_tool_execution(mut self, strategy: ToolExecutionStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Asks the agent, and returns the events of the run. The run makes progress only while its events are
    /// read. A conversation has one run at a time: until the events of the previous run are read to the end
    /// or dropped, a new run ends immediately with an error.
    ///
    /// # Cancellation
    /// Dropping the events drops the run.
    pub async fn prompt(&mut self, text: impl Into<String>) -> AgentEvents {
        let RunParts { run_lock, registry, provider } = match self.prepare_run() {
            Ok(parts) => parts,
            Err(end) => return AgentEvents::failed_to_start(end),
        };
        let mut config = AgentConfig::new(AGENT_ID);
        // Clone, because the agent creates a new loop for each run.
        config.system.clone_from(&self.system_prompt);
        config.model.clone_from(&self.model);
        config.strategy = self.strategy.into();
        let (sender, receiver) = event_channel(DEFAULT_EVENT_CAPACITY);
        let mut caller = Caller::new(AGENT_ID, "");
        caller.approver.clone_from(&self.approver);
        let executor = RegistryExecutor::new(registry, caller);
        let mut agent = AgentLoop::new(config, sender, self.store.clone(), provider, executor);
        self.handle = Some(agent.handle());
        let text = text.into();
        AgentEvents::start(receiver, async move {
            agent.run(text).await;
            // Release the lock last, so that the conversation refuses a second run until here.
            drop(run_lock);
        })
    }

    /// Returns a handle that steers or cancels the last run.
    #[must_use]
    pub fn handle(&self) -> Option<AgentHandle> {
        self.handle.clone()
    }

    /// Returns the registry of the agent's tools.
    ///
    /// # Errors
    /// [`BootstrapError`]: for example a name that is taken, or an unusable policy or state folder. Later calls
    /// give the same error.
    pub fn registry(&mut self) -> Result<Arc<ToolRegistry>, Arc<BootstrapError>> {
        self.tools.registry()
    }

    /// Prepares a run, or returns the end of a run that cannot begin.
    fn prepare_run(&mut self) -> Result<RunParts, AgentEnd> {
        let internal = |message| AgentEnd::Internal { message };
        let run_lock = Arc::clone(&self.run_lock).try_lock_owned();
        let run_lock = run_lock.map_err(|error| internal(format!("a run of this agent goes on: {error}")))?;
        let registry = self.tools.registry().map_err(|error| internal(error_chain(&*error)))?;
        let provider = self.provider.connect(&self.api_key, &self.model);
        let provider = provider
            .map_err(|error| AgentEnd::Provider { kind: error.kind(), message: error_chain(&error) })?;
        Ok(RunParts { run_lock, registry, provider })
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("model", &self.model).finish_non_exhaustive()
    }
}

/// The parts that a run needs.
struct RunParts {
    /// The lock on the conversation.
    run_lock: OwnedMutexGuard<()>,
    registry: Arc<ToolRegistry>,
    provider: Box<dyn Provider>,
}

/// The events of a run, in the format of Yoagent.
pub struct AgentEvents {
    /// The run, or `None` when it has ended.
    run: Option<ActiveRun>,
    format: YoagentEvents,
    pending_events: VecDeque<AgentEvent>,
    end: Option<AgentEnd>,
}

impl AgentEvents {
    /// Returns the next event, or `None` after [`AgentEvent::AgentEnd`].
    ///
    /// # Cancellation
    /// Dropping the future loses no event. The run pauses until the next event is requested.
    pub async fn recv(&mut self) -> Option<AgentEvent> {
        while self.pending_events.is_empty() {
            let ActiveRun { run, events } = self.run.as_mut()?;
            let event = match run.as_mut() {
                Some(future) => tokio::select! {
                    // `biased`: return ready events before handling the end of the run.
                    biased;
                    event = events.recv() => event,
                    // The run may have sent an event in its last step, so read the channel again.
                    () = future => {
                        *run = None;
                        events.try_recv()
                    }
                },
                None => events.try_recv(),
            };
            if let Some(agent::AgentEvent::AgentEnd { end }) = &event {
                self.end = Some(end.clone());
                // This is the last event. Drop the run to release its lock, so that the next run can begin
                // even while this value exists.
                self.run = None;
            }
            match event {
                Some(event) => self.pending_events.extend(self.format.events(&event)),
                None => self.run = None,
            }
        }
        self.pending_events.pop_front()
    }

    /// Returns how the run ended, for the operator, or `None` while the run continues.
    #[must_use]
    pub fn end(&self) -> Option<&AgentEnd> {
        self.end.as_ref()
    }

    fn start(events: EventReceiver, run: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            run: Some(ActiveRun { run: Some(Box::pin(run)), events }),
            format: YoagentEvents::default(),
            pending_events: VecDeque::new(),
            end: None,
        }
    }

    /// Returns the events of a run that could not begin.
    fn failed_to_start(end: AgentEnd) -> Self {
        let mut format = YoagentEvents::default();
        let start_event =
            agent::AgentEvent::AgentStart { agent_id: AGENT_ID.to_owned(), run_id: String::new() };
        let end_event = agent::AgentEvent::AgentEnd { end: end.clone() };
        let pending_events = [start_event, end_event].iter().flat_map(|event| format.events(event)).collect();
        Self { run: None, format, pending_events, end: Some(end) }
    }
}

struct ActiveRun {
    /// The run's future, or `None` when it has ended and only events remain.
    run: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    events: EventReceiver,
}

impl fmt::Debug for AgentEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentEvents").field("end", &self.end).finish_non_exhaustive()
    }
}

/// An agent's tools.
enum AgentTools {
    /// The tools are not registered yet.
    Unregistered(Box<UnregisteredTools>),
    /// The registry, or the reason why there is none.
    Registered(Result<Arc<ToolRegistry>, Arc<BootstrapError>>),
}

#[derive(Default)]
struct UnregisteredTools {
    /// The builder of [`Agent::with_runtime`].
    runtime: Option<RegistryBuilder>,
    agent_tools: Vec<Box<dyn AgentTool>>,
}

impl AgentTools {
    fn unregistered(runtime: Option<RegistryBuilder>, agent_tools: Vec<Box<dyn AgentTool>>) -> Self {
        Self::Unregistered(Box::new(UnregisteredTools { runtime, agent_tools }))
    }

    /// Takes the builder, if the tools are not registered yet.
    fn take_runtime(&mut self) -> Option<RegistryBuilder> {
        let Self::Unregistered(unregistered) = self else { return None };
        unregistered.runtime.take()
    }

    /// Takes the agent's own tools, if they are not registered yet.
    fn take_agent_tools(&mut self) -> Vec<Box<dyn AgentTool>> {
        let Self::Unregistered(unregistered) = self else { return Vec::new() };
        mem::take(&mut unregistered.agent_tools)
    }

    /// Returns the registry of the tools. The first call builds it.
    fn registry(&mut self) -> Result<Arc<ToolRegistry>, Arc<BootstrapError>> {
        let registry = match self {
            Self::Registered(registry) => return registry.clone(),
            Self::Unregistered(unregistered) => mem::take(&mut **unregistered).registry(),
        };
        let registry = registry.map(Arc::new).map_err(Arc::new);
        *self = Self::Registered(registry.clone());
        registry
    }
}

impl UnregisteredTools {
    fn registry(self) -> Result<ToolRegistry, BootstrapError> {
        let builder = self.runtime.unwrap_or_else(ToolRegistry::builder);
        let (shipped, custom): (Vec<_>, Vec<_>) =
            // Replace each placeholder by the shipped tool of its name, which runs under the shipped policy.
            self.agent_tools.into_iter().partition(|tool| tool.stands_for_shipped());
        let names: Vec<String> = shipped.iter().map(|tool| tool.name().to_owned()).collect();
        let builder = builder.shipped_tools(&names);
        custom.into_iter().fold(builder, |builder, tool| builder.shared_tool(tool.into_tool())).build()
    }
}

/// The agent id of the calls, for rate limits and the audit log.
const AGENT_ID: &str = "yoagent";
