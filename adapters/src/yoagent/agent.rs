//! [`Agent`]: the agent of specification 002, on our loop and a registry of its tools.

use std::{collections::VecDeque, fmt, future::Future, mem, pin::Pin, sync::Arc};

use portcullis_agent::{
    self as agent, AgentConfig, AgentEnd, AgentHandle, AgentLoop, DEFAULT_EVENT_CAPACITY, EventReceiver,
    InMemoryMessageStore, Provider, event_channel,
};
use portcullis_tools::{
    BootstrapError, Caller, RegistryBuilder, RegistryExecutor, ToolRegistry, approval::Approver,
};
use portcullis_types::chain;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    provider::StreamProvider,
    types::{AgentEvent, AgentTool, ToolExecutionStrategy},
};
use crate::{IntoTool, event_formats::yoagent::Yoagent};

/// An agent as specification 002 builds it ("End-to-end example"): a model, instructions, tools, and one
/// conversation.
///
/// Its tools are native tools of a registry under the operator's policy, found in the usual places. Those of
/// [`default_tools`](super::tools::default_tools) run under the shipped one; a tool of the program's own runs only where
/// the policy enables it by name (`[tools.NAME] enabled = true`). Nobody is asked for approvals, unless the program says
/// otherwise: [`Agent::with_runtime`], [`Agent::with_approver`].
pub struct Agent {
    provider: Arc<dyn StreamProvider>,
    system_prompt: Option<String>,
    model: String,
    api_key: String,
    strategy: ToolExecutionStrategy,
    tools: Tools,
    approver: Option<Arc<dyn Approver>>,
    store: InMemoryMessageStore,
    /// Held by the run that goes on: one conversation has one at a time.
    turn: Arc<Mutex<()>>,
    handle: Option<AgentHandle>,
}

impl Agent {
    /// An agent without instructions, model name, key or tools; calls of one answer run in parallel.
    #[must_use]
    pub fn new(provider: impl StreamProvider + 'static) -> Self {
        Self {
            provider: Arc::new(provider),
            system_prompt: None,
            model: String::new(),
            api_key: String::new(),
            strategy: ToolExecutionStrategy::default(),
            tools: Tools::given(None, Vec::new()),
            approver: None,
            store: InMemoryMessageStore::new(),
            turn: Arc::default(),
            handle: None,
        }
    }

    /// The same with instructions.
    #[must_use]
    pub fn with_system_prompt(mut self, prompt: impl Into<String>) -> Self {
        self.system_prompt = Some(prompt.into());
        self
    }

    /// The same with a model's name.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = model.into();
        self
    }

    /// The same with the provider's key.
    #[must_use]
    pub fn with_api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = key.into();
        self
    }

    /// The same with these tools instead of those it had. For an agent that was not asked anything yet: what is
    /// registered is not taken apart, and goes with all of its tools.
    #[must_use]
    pub fn with_tools(mut self, tools: Vec<Box<dyn AgentTool>>) -> Self {
        self.tools = Tools::given(self.tools.runtime(), tools);
        self
    }

    /// The same with the tools of this builder beside its own, for an agent that was not asked anything yet. What
    /// [`runtime_builder`](portcullis_tools::runtime_builder) gives has those over a workspace's files and `shell_exec`, confined as the workspace's policy says, and those of
    /// [`default_tools`](super::tools::default_tools), which may be given as well. Default: none, since
    /// specification 002's programs name no folder, and none is opened that was not named.
    #[must_use]
    pub fn with_runtime(mut self, builder: RegistryBuilder) -> Self {
        self.tools = Tools::given(Some(builder), self.tools.own());
        self
    }

    /// The same with somebody who is asked where the policy asks. Default: nobody, which means no.
    #[must_use]
    pub fn with_approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// The same with another way to run the calls of one answer.
    #[must_use]
    pub fn with_tool_execution(mut self, strategy: ToolExecutionStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Asks the agent something, and gives what happens. The run goes on while its events are read. One
    /// conversation has one run at a time: while the events of the last one are neither read to their end nor
    /// dropped, the next one ends at once, with an error.
    ///
    /// # Cancellation
    /// Dropping the events drops the run.
    pub async fn prompt(&mut self, text: impl Into<String>) -> AgentEvents {
        let Needs { turn, registry, provider } = match self.ready() {
            Ok(ready) => ready,
            Err(end) => return AgentEvents::of_no_run(end),
        };
        let mut config = AgentConfig::new(AGENT);
        config.system.clone_from(&self.system_prompt);
        config.model.clone_from(&self.model);
        config.strategy = self.strategy.into();
        let (sender, receiver) = event_channel(DEFAULT_EVENT_CAPACITY);
        let mut caller = Caller::new(AGENT, "");
        caller.approver.clone_from(&self.approver);
        let executor = RegistryExecutor::new(registry, caller);
        let mut agent = AgentLoop::new(config, sender, self.store.clone(), provider, executor);
        self.handle = Some(agent.handle());
        let text = text.into();
        AgentEvents::of(receiver, async move {
            agent.run(text).await;
            drop(turn);
        })
    }

    /// A hold on the run that was begun last: to say something in between, or to give it up.
    #[must_use]
    pub fn handle(&self) -> Option<AgentHandle> {
        self.handle.clone()
    }

    /// The registry that the agent's tools run in.
    ///
    /// # Errors
    /// Why there is none, for the operator: a name that is taken, a policy or a state folder that cannot be
    /// used.
    pub fn registry(&mut self) -> Result<Arc<ToolRegistry>, String> {
        self.tools.registry()
    }

    /// What a run needs, or how it ends without.
    fn ready(&mut self) -> Result<Needs, AgentEnd> {
        let internal = |message| AgentEnd::Internal { message };
        let turn = Arc::clone(&self.turn).try_lock_owned();
        let turn = turn.map_err(|error| internal(format!("a run of this agent goes on: {error}")))?;
        let registry = self.tools.registry().map_err(internal)?;
        let provider = self.provider.connect(&self.api_key, &self.model);
        let provider =
            provider.map_err(|error| AgentEnd::Provider { kind: error.kind(), message: chain(&error) })?;
        Ok(Needs { turn, registry, provider })
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("model", &self.model).finish_non_exhaustive()
    }
}

/// What a run needs.
struct Needs {
    /// The conversation's one run at a time.
    turn: OwnedMutexGuard<()>,
    registry: Arc<ToolRegistry>,
    provider: Box<dyn Provider>,
}

/// What happens in a run, in the words of specification 002.
pub struct AgentEvents {
    /// None when the run is over.
    run: Option<Running>,
    form: Yoagent,
    ready: VecDeque<AgentEvent>,
    end: Option<AgentEnd>,
}

impl AgentEvents {
    /// The next event; none after [`AgentEvent::AgentEnd`].
    ///
    /// # Cancellation
    /// Dropping the future loses no event; the run stands still until the next one is asked for.
    pub async fn recv(&mut self) -> Option<AgentEvent> {
        while self.ready.is_empty() {
            let Running { run, events } = self.run.as_mut()?;
            let event = match run.as_mut() {
                Some(going) => tokio::select! {
                    biased;
                    event = events.recv() => event,
                    () = going => {
                        *run = None;
                        events.try_recv()
                    }
                },
                None => events.try_recv(),
            };
            if let Some(agent::AgentEvent::AgentEnd { end }) = &event {
                self.end = Some(end.clone());
                // Nothing comes after it, and the next run need not wait for whoever holds this.
                self.run = None;
            }
            match event {
                Some(event) => self.ready.extend(self.form.events(&event)),
                None => self.run = None,
            }
        }
        self.ready.pop_front()
    }

    /// How the run ended, in words for the operator; none while it goes on.
    #[must_use]
    pub fn end(&self) -> Option<&AgentEnd> {
        self.end.as_ref()
    }

    fn of(events: EventReceiver, run: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            run: Some(Running { run: Some(Box::pin(run)), events }),
            form: Yoagent::default(),
            ready: VecDeque::new(),
            end: None,
        }
    }

    /// The events of a run that could not begin.
    fn of_no_run(end: AgentEnd) -> Self {
        let mut form = Yoagent::default();
        let begin = agent::AgentEvent::AgentStart { agent_id: AGENT.to_owned(), run_id: String::new() };
        let over = agent::AgentEvent::AgentEnd { end: end.clone() };
        let ready = [begin, over].iter().flat_map(|event| form.events(event)).collect();
        Self { run: None, form, ready, end: Some(end) }
    }
}

/// A run, and its events.
struct Running {
    /// None when it has come to its end and only events are left.
    run: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    events: EventReceiver,
}

impl fmt::Debug for AgentEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentEvents").field("end", &self.end).finish_non_exhaustive()
    }
}

/// An agent's tools.
enum Tools {
    /// Not registered yet.
    Given(Box<Given>),
    Registered(Arc<ToolRegistry>),
    /// They cannot be registered, for this reason.
    Refused(String),
}

#[derive(Default)]
struct Given {
    /// What has other tools already.
    runtime: Option<RegistryBuilder>,
    own: Vec<Box<dyn AgentTool>>,
}

impl Tools {
    fn given(runtime: Option<RegistryBuilder>, own: Vec<Box<dyn AgentTool>>) -> Self {
        Self::Given(Box::new(Given { runtime, own }))
    }

    /// Takes the builder out.
    fn runtime(&mut self) -> Option<RegistryBuilder> {
        let Self::Given(given) = self else { return None };
        given.runtime.take()
    }

    /// Takes the agent's own tools out.
    fn own(&mut self) -> Vec<Box<dyn AgentTool>> {
        let Self::Given(given) = self else { return Vec::new() };
        mem::take(&mut given.own)
    }

    /// The registry of the tools, which is built when it is first asked for.
    fn registry(&mut self) -> Result<Arc<ToolRegistry>, String> {
        if let Self::Given(given) = self {
            *self = match mem::take(&mut **given).registry() {
                Ok(registry) => Self::Registered(Arc::new(registry)),
                Err(error) => Self::Refused(chain(&error)),
            };
        }
        match self {
            Self::Registered(registry) => Ok(Arc::clone(registry)),
            Self::Refused(why) => Err(why.clone()),
            Self::Given(_) => Err("the tools are not registered".to_owned()),
        }
    }
}

impl Given {
    fn registry(self) -> Result<ToolRegistry, BootstrapError> {
        let builder = self.runtime.unwrap_or_else(ToolRegistry::builder);
        let (shipped, own): (Vec<_>, Vec<_>) =
            self.own.into_iter().partition(|tool| tool.stands_for_shipped());
        let names: Vec<String> = shipped.iter().map(|tool| tool.name().to_owned()).collect();
        let builder = builder.shipped_tools(&names);
        own.into_iter().fold(builder, |builder, tool| builder.shared_tool(tool.into_tool())).build()
    }
}

/// Which agent the calls are of, for rate limits and the audit log.
const AGENT: &str = "yoagent";
