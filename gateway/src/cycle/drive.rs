//! Runs the loop of a cycle over its stored run.

use std::{collections::BTreeMap, sync::Arc};

use portcullis_agent::{
    AgentConfig, AgentEnd, AgentLoop, DeltaStream, ModelRequest, Provider, ProviderError, ProviderErrorKind,
};
use portcullis_runs::{
    Continuation, DrivenRun, ModelIdentity, RecordedModel, RunId, RunSubject, StoredApprover, StoredExecutor,
    StoredExternalCalls, now,
};
use portcullis_store::{NewApprovalRequest, NoteKind, PageRequest, Participant};
use portcullis_tools::{CallStartListener, Caller, RegistryExecutor, ToolRegistry};
use portcullis_types::{Message, async_trait, error_chain};
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    calls::ShownCalls,
    events::CycleEvents,
    executor::SpaceExecutor,
    space::{CycleAgent, CycleSpace},
};
use crate::{
    agent_servers::AgentServers,
    agent_tool::{self, AgentTools},
    builtins,
    capabilities::AgentCapabilities,
    error::ApiError,
    from_store, prompt,
    resource::{AgentDefinition, format_timestamp},
    state::{ChosenModel, GatewayState, event},
};

/// The maximum number of goals, of memories and of plans that the model reads.
const MAX_NOTES_IN_PROMPT: u32 = 50;

/// Drives a run of an agent to its end, or until the gateway stops.
///
/// # Errors
/// [`ApiError`] if the run cannot be driven. Then it stays open.
///
/// # Cancellation
/// The run stays open, and a later process resumes it.
pub(crate) async fn drive(
    state: &Arc<GatewayState>,
    agent: &Participant,
    id: &RunId,
) -> Result<(), ApiError> {
    let definition = from_store::definition(agent)?;
    let (registry, tools) = agent_tool::registry_of(state, &definition.tools)?;
    let registry = Arc::new(registry);
    let capabilities = AgentCapabilities::read(definition.capabilities.as_deref())?;
    let mut caller = Caller::new(agent.id.clone(), id.to_string());
    let servers = AgentServers::read(definition.mcp.as_ref())?;
    caller.tools = capabilities.tools(tools.values().map(|tool| &tool.name).chain(servers.names()));
    let subject = RunSubject { id: id.clone(), agent: agent.id.clone(), workspace: state.workspace.clone() };
    let driven =
        state.runs.drive(&subject, Continuation::Resume, Arc::clone(&registry), caller.clone()).await?;
    let cycle = Cycle { state, agent, id, definition, capabilities, servers, registry, caller, driven };
    let cycle_end = cycle.run(tools).await;
    cycle.registry.end_run(&cycle.caller);
    // Only warn: a lease that is not released expires.
    if let Err(error) = cycle.driven.release().await {
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot release the lease of a run");
    }
    if let Some((space, end)) = cycle_end? {
        show_end(&space, &end).await?;
    }
    Ok(())
}

/// A cycle whose lease this process holds.
struct Cycle<'a> {
    state: &'a Arc<GatewayState>,
    agent: &'a Participant,
    id: &'a RunId,
    definition: AgentDefinition,
    capabilities: AgentCapabilities,
    servers: AgentServers,
    registry: Arc<ToolRegistry>,
    caller: Caller,
    driven: Arc<DrivenRun>,
}

impl Cycle<'_> {
    /// Runs the loop. Returns `None` if the gateway stops first.
    async fn run(&self, tools: AgentTools) -> Result<Option<(Arc<CycleSpace>, AgentEnd)>, ApiError> {
        let Self { state, agent, id, registry, caller, driven, .. } = self;
        let cycle_agent = CycleAgent { id: agent.id.clone(), name: agent.name.clone(), tools };
        let entered = entered_space(state, agent, id).await?;
        let space = Arc::new(CycleSpace::new(Arc::clone(state), cycle_agent, id.to_string(), entered));
        builtins::add(&space, registry)?;

        let model = self.model().await;
        let own_instructions = self.capabilities.with_prompts(&self.definition.instructions);
        let config = AgentConfig {
            run_id: Some(id.to_string()),
            system: Some(instructions(state, agent, &own_instructions).await?),
            model: model.identity.name.clone(),
            ..AgentConfig::new(agent.id.clone())
        };
        // The channel is unbounded, because the callback must not block. The store limits the open questions
        // of a run.
        let (request_sender, mut requests) = mpsc::unbounded_channel();
        let executor = RegistryExecutor::new(
            Arc::clone(registry),
            caller_of_cycle(caller, driven, &space, request_sender),
        );
        let executor = SpaceExecutor {
            inner: StoredExecutor::new(executor.with_continued_run(), Arc::clone(driven)),
            registry: Arc::clone(registry),
            space: Arc::clone(&space),
        };
        let provider =
            RecordedModel::new(model.provider, Arc::clone(registry), caller.clone(), model.identity);
        let mut agent_loop = AgentLoop::new(
            config,
            CycleEvents::new(Arc::clone(&space)),
            Arc::clone(driven),
            provider,
            executor,
        );
        let handle = agent_loop.handle();
        let start =
            driven.take_resume_point(&handle).expect("the resume point of a driven run is taken once");
        let _lease = driven.keep_lease(handle);
        let cycle_end = {
            let mut work = std::pin::pin!(async {
                // A server may be slow, so the lease is already being renewed here.
                self.servers.add_tools(registry, caller).await;
                agent_loop.resume(start).await
            });
            loop {
                tokio::select! {
                    cycle_end = &mut work => break Some(cycle_end.end),
                    Some(request) = requests.recv() => show_approval_request(&space, &request).await,
                    // Drop the work at its current step. The run stays open, and a later process resumes it.
                    () = state.stop.cancelled() => break None,
                }
            }
        };
        Ok(cycle_end.map(|end| (space, end)))
    }

    async fn model(&self) -> ChosenModel {
        let requested_model = self.definition.model.as_deref();
        match self.state.models.choose(&self.agent.id, requested_model).await {
            Ok(model) => model,
            // Let the run fail with this message, so that a person sees it.
            Err(error) => ChosenModel {
                provider: Arc::new(NoModel(error_chain(&error))),
                identity: ModelIdentity {
                    name: requested_model.unwrap_or_default().to_owned(),
                    address: None,
                },
            },
        }
    }
}

/// Returns the caller of the cycle's calls.
fn caller_of_cycle(
    caller: &Caller,
    driven: &Arc<DrivenRun>,
    space: &Arc<CycleSpace>,
    request_sender: mpsc::UnboundedSender<NewApprovalRequest>,
) -> Caller {
    let mut caller = caller.clone();
    caller.start_listener = Some(Arc::clone(driven) as Arc<dyn CallStartListener>);
    let inner = StoredExternalCalls::new(Arc::clone(driven)).with_inbox(space.agent.id.clone());
    caller.external_calls = Some(Arc::new(ShownCalls { inner, space: Arc::clone(space) }));
    let approver = StoredApprover::in_store(Arc::clone(driven));
    let approver = approver.on_approval_request(Arc::new(move |request: &NewApprovalRequest| {
        // A send fails only after the cycle has ended, when no one reads the questions.
        let _ = request_sender.send(request.clone());
    }));
    caller.approver = Some(Arc::new(approver));
    caller
}

async fn instructions(state: &GatewayState, agent: &Participant, own: &str) -> Result<String, ApiError> {
    let mut kept = Vec::new();
    for (title, kind) in
        [("goals", NoteKind::Goal), ("memories", NoteKind::Memory), ("plans", NoteKind::Plan)]
    {
        let page = state.store.notes(&agent.id, kind, PageRequest::first(MAX_NOTES_IN_PROMPT)).await?;
        kept.push((title, page.items));
    }
    Ok(prompt::instructions(&agent.name, own, &kept))
}

/// Returns the space that the agent is in. It is derived from the calls in the run's messages, which begin
/// with those of earlier cycles. The model reads the same messages, so both agree even after a restart.
async fn entered_space(
    state: &GatewayState,
    agent: &Participant,
    id: &RunId,
) -> Result<Option<String>, ApiError> {
    let mut entered = None;
    let mut requested: BTreeMap<String, Option<String>> = BTreeMap::new();
    let stored = portcullis_runs::all_rows(|page| state.store.messages(id.as_str(), page)).await?;
    for message in stored {
        let message: Message = match serde_json::from_str(message.body.as_str()) {
            Ok(message) => message,
            Err(error) => return Err(ApiError::internal(&error)),
        };
        for call in &message.tool_calls {
            match call.tool.as_str() {
                builtins::ENTER_SPACE => {
                    let arguments: serde_json::Value =
                        serde_json::from_str(&call.arguments).unwrap_or_default();
                    // A call without a valid space id has failed, so its entry is never used.
                    requested.insert(call.id.clone(), arguments["spaceId"].as_str().map(str::to_owned));
                }
                builtins::LEAVE_SPACE => {
                    requested.insert(call.id.clone(), None);
                }
                _ => {}
            }
        }
        // Only a call with a result has run.
        let answered = message.tool_call_id.as_ref().and_then(|id| requested.remove(id));
        if let Some(space) = answered {
            // `executor::shape` gives every error of a call this form.
            let failed = serde_json::from_str::<serde_json::Value>(&message.text())
                .is_ok_and(|result| result.get("error").is_some());
            if !failed {
                entered = space;
            }
        }
    }
    match &entered {
        // The agent may have been removed from the space since it entered.
        Some(space) if state.store.is_member(space, &agent.id).await? => Ok(entered),
        _ => Ok(None),
    }
}

async fn show_approval_request(space: &CycleSpace, request: &NewApprovalRequest) {
    let write_event = async {
        let data = json!({ "approval": {
            "id": request.id,
            "runId": space.run,
            "agentId": space.agent.id,
            "toolName": request.tool,
            "question": request.question,
            "hash": request.hash,
            "status": "waiting",
            "createdAt": format_timestamp(now()),
            "expiresAt": request.expires.map(format_timestamp),
        } });
        let change = event("approval.requested", space.topics(space.entered().as_deref()), &data)?;
        space.state.write(vec![change]).await
    };
    if let Err(error) = write_event.await {
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot show a request for an approval");
    }
}

async fn show_end(space: &CycleSpace, end: &AgentEnd) -> Result<(), ApiError> {
    let status = match end {
        AgentEnd::Answer { .. } => "completed",
        AgentEnd::Cancelled => "cancelled",
        _ => "failed",
    };
    // The provider's own message is for the operator, who finds it in the run's steps.
    let message = match end {
        AgentEnd::Provider { .. } => "the model's provider failed".to_owned(),
        AgentEnd::Internal { .. } => "an internal fault".to_owned(),
        end => end.to_string(),
    };
    let data = json!({
        "runId": space.run,
        "agentId": space.agent.id,
        "status": status,
        "message": message,
    });
    let topics = space.topics(space.entered().as_deref());
    space.state.write(vec![event("run.finished", topics, &data)?]).await?;
    Ok(())
}

/// The provider of an agent without a model. Every request fails with this message.
struct NoModel(String);

#[async_trait]
impl Provider for NoModel {
    async fn stream(&self, _request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        Err(ProviderError::new(ProviderErrorKind::Configuration, self.0.clone()))
    }
}
