//! [`CycleSpace`]: the space that an agent is in during a cycle, and the messages of its calls there.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use portcullis_adapters::hsafa::ToolConfiguration;
use portcullis_runs::now;
use portcullis_store::{
    Author, Change, ChangeResult, Json, MessageKind, MessageStatus, MessageUpdate, NewMessage,
    ParticipantKind, StoreError,
};
use portcullis_tools::external_call_id;
use serde_json::{Value, json};

use crate::{
    agent_tool::AgentTools,
    builtins::SEND_MESSAGE,
    from_store,
    resource::ShownCall,
    state::{GatewayState, event, run_topics},
    topic,
};

/// The execution type, in events, of tools that are in no definition.
const BUILT_IN: &str = "built_in";

/// The agent of a cycle.
#[derive(Debug, Clone)]
pub(crate) struct CycleAgent {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) tools: AgentTools,
}

/// The space that an agent is in during a cycle, and the calls in flight.
pub(crate) struct CycleSpace {
    pub(crate) state: Arc<GatewayState>,
    pub(crate) agent: CycleAgent,
    pub(crate) run: String,
    entered_space: Mutex<Option<String>>,
    calls: Mutex<HashMap<String, CycleCall>>,
}

/// A call that has begun, as readers see it.
#[derive(Debug, Clone)]
struct CycleCall {
    tool: String,
    /// The message that shows the call, and the message's space.
    message: Option<(String, String)>,
    shown_call: ShownCall,
    /// Whether the result comes from outside.
    waits: bool,
    /// Whether the message is the text that the call sends, instead of a rendering of the call.
    is_text: bool,
}

/// Returns the id of the message that shows a call or that a call sends. It is derived from the call, so a
/// repeated call finds its message.
pub(crate) fn message_id(agent: &str, run: &str, call: &str) -> String {
    let id = external_call_id(agent, run, call);
    format!("msg_{}", id.trim_start_matches("call_"))
}

impl CycleSpace {
    pub(crate) fn new(
        state: Arc<GatewayState>,
        agent: CycleAgent,
        run: String,
        entered: Option<String>,
    ) -> Self {
        Self { state, agent, run, entered_space: Mutex::new(entered), calls: Mutex::default() }
    }

    /// Returns the space that the agent is in.
    pub(crate) fn entered(&self) -> Option<String> {
        self.entered_space.lock().clone()
    }

    /// Enters a space, or leaves the current one for `None`. Returns the previous space.
    pub(crate) fn enter(&self, space: Option<String>) -> Option<String> {
        std::mem::replace(&mut *self.entered_space.lock(), space)
    }

    /// Returns the configuration of a tool of this agent. A tool without a configuration is not visible.
    pub(crate) fn tool(&self, name: &str) -> Option<&ToolConfiguration> {
        self.agent.tools.get(name)
    }

    /// Returns the author of this agent's messages.
    pub(crate) fn author(&self) -> Author {
        Author { id: self.agent.id.clone(), kind: ParticipantKind::Agent, name: self.agent.name.clone() }
    }

    /// Returns the topics of this run's events, including the given space.
    pub(crate) fn topics(&self, space: Option<&str>) -> Vec<String> {
        run_topics(&self.agent.id, &self.run, space)
    }

    /// Shows that a call begins: in its space if its tool is visible, and to readers of the agent. `input` is
    /// `None` while the arguments arrive. A call that is already shown gets its input.
    pub(crate) async fn show_begin(
        &self,
        call: &str,
        tool: &str,
        input: Option<&Value>,
    ) -> Result<(), StoreError> {
        // Work on a copy of the call, because the lock must not be held across the write to the store.
        let known = self.calls.lock().get(call).cloned();
        let is_new = known.is_none();
        let mut open = known.unwrap_or_else(|| self.open_call(call, tool));
        if let Some(input) = input {
            open.shown_call.input = input.clone();
        }
        let mut changes = Vec::new();
        let is_visible = self.tool(tool).is_some_and(|tool| tool.visible);
        match (&open.message, self.entered().filter(|_| is_visible)) {
            (Some((id, space)), _) if input.is_some() && !open.is_text => {
                changes.extend(self.update(id, space, &open.shown_call, MessageStatus::Streaming, None)?);
            }
            // Show the agent's text while it arrives.
            (None, _) if tool == SEND_MESSAGE && input.is_none() => {
                if let Some(space) = self.entered() {
                    let id = message_id(&self.agent.id, &self.run, call);
                    changes.extend(self.post_text(&id, &space));
                    open.message = Some((id, space));
                    open.is_text = true;
                }
            }
            (None, Some(space)) => {
                let id = message_id(&self.agent.id, &self.run, call);
                changes.extend(self.post(&id, &space, call, &open.shown_call)?);
                open.message = Some((id, space));
            }
            _ => {}
        }
        if is_new {
            let space = open.message.as_ref().map(|(_, space)| space.as_str());
            let data = json!({
                "callId": open.shown_call.call_id,
                "runId": self.run,
                "agentId": self.agent.id,
                "name": tool,
                "messageId": open.message.as_ref().map(|(id, _)| id),
                "spaceId": space,
                "input": open.shown_call.input,
                "executionType": open.shown_call.execution_type,
                "isAsync": open.shown_call.is_async,
            });
            changes.push(event("tool.started", self.topics(space), &data)?);
        }
        self.calls.lock().insert(call.to_owned(), open);
        self.write(changes).await
    }

    fn open_call(&self, call: &str, tool: &str) -> CycleCall {
        let configuration = self.tool(tool);
        let shown = ShownCall {
            call_id: external_call_id(&self.agent.id, &self.run, call),
            run_id: self.run.clone(),
            name: tool.to_owned(),
            execution_type: configuration.map_or(BUILT_IN, |tool| tool.execution_type.as_str()).to_owned(),
            is_async: configuration.is_some_and(|tool| tool.is_async),
            input: Value::Null,
            output: None,
            error: None,
        };
        CycleCall { tool: tool.to_owned(), message: None, shown_call: shown, waits: false, is_text: false }
    }

    /// Shows that a call waits for a result from outside.
    pub(crate) async fn show_waiting(
        &self,
        call: &str,
        (status, expires): (&str, i64),
    ) -> Result<(), StoreError> {
        let open = {
            let mut calls = self.calls.lock();
            let Some(open) = calls.values_mut().find(|open| open.shown_call.call_id == call) else {
                return Ok(());
            };
            open.waits = true;
            open.clone()
        };
        let mut changes = Vec::new();
        if let Some((id, space)) = &open.message {
            // A fast result may have completed the message already, so expect the previous status.
            let status = MessageStatus::RequiresAction;
            changes.extend(self.update(
                id,
                space,
                &open.shown_call,
                status,
                Some(MessageStatus::Streaming),
            )?);
        }
        let space = open.message.as_ref().map(|(_, space)| space.as_str());
        let data = json!({
            "callId": call,
            "runId": self.run,
            "agentId": self.agent.id,
            "name": open.tool,
            "args": open.shown_call.input,
            "executionType": open.shown_call.execution_type,
            "status": status,
            "expiresAt": crate::resource::format_timestamp(expires),
        });
        changes.push(event("call.pending", self.topics(space), &data)?);
        self.write(changes).await
    }

    /// Shows how a call has ended, and forgets the call.
    pub(crate) async fn show_outcome(&self, call: &str, end: ShownOutcome) -> Result<(), StoreError> {
        let Some(mut open) = self.calls.lock().remove(call) else { return Ok(()) };
        let space = open.message.as_ref().map(|(_, space)| space.clone());
        let mut data = json!({
            "callId": open.shown_call.call_id,
            "runId": self.run,
            "agentId": self.agent.id,
            "name": open.tool,
            "messageId": open.message.as_ref().map(|(id, _)| id),
        });
        let mut changes = Vec::new();
        let (kind, status) = match end {
            // The message stays open until the result comes.
            ShownOutcome::Pending => return Ok(()),
            ShownOutcome::Output(output) => {
                data["output"] = output.clone();
                open.shown_call.output = Some(output);
                ("tool.done", Some(MessageStatus::Complete))
            }
            ShownOutcome::Error { message, takes_result } => {
                data["error"] = message.clone().into();
                open.shown_call.error = Some(message);
                // A call that still accepts a result stays open in its space.
                ("tool.error", (!(takes_result && open.waits)).then_some(MessageStatus::Error))
            }
        };
        if let (Some((id, space)), true) = (&open.message, open.is_text) {
            self.state.hub.end_stream(id);
            // The message of a successful call is complete already, because `post` completed it.
            if status == Some(MessageStatus::Error) {
                changes.extend(fail_text(id, space));
            }
        } else if let (Some((id, space)), Some(status)) = (&open.message, status) {
            // A person may have completed the message in the meantime. The expected status keeps that result.
            let before = if open.waits { MessageStatus::RequiresAction } else { MessageStatus::Streaming };
            changes.extend(self.update(id, space, &open.shown_call, status, Some(before))?);
        }
        changes.push(event(kind, self.topics(space.as_deref()), &data)?);
        self.write(changes).await
    }

    /// Returns the id and the topics of a call whose arguments are arriving.
    pub(crate) fn streamed(&self, call: &str) -> (String, Vec<String>) {
        let open = self.calls.lock().get(call).cloned();
        let space = open.and_then(|open| open.message).map(|(_, space)| space);
        (external_call_id(&self.agent.id, &self.run, call), self.topics(space.as_deref()))
    }

    /// Returns the changes that post a text that is still arriving.
    fn post_text(&self, id: &str, space: &str) -> [Change; 2] {
        let message = NewMessage {
            id: id.to_owned(),
            space: space.to_owned(),
            author: self.author(),
            kind: MessageKind::Text,
            text: String::new(),
            reply_to: None,
            status: MessageStatus::Streaming,
            call: None,
            metadata: None,
            created: now(),
        };
        [Change::PostMessage(message), message_event("message.created", space)]
    }

    /// Shows the part of a message's text that has arrived.
    pub(crate) fn show_text(&self, call: &str, text: &str) {
        let message =
            self.calls.lock().get(call).filter(|open| open.is_text).and_then(|open| open.message.clone());
        if let Some((id, space)) = message {
            self.state.hub.stream_text(&id, &[topic::for_space(&space)].into(), text);
        }
    }

    fn post(&self, id: &str, space: &str, call: &str, shown: &ShownCall) -> Result<[Change; 2], StoreError> {
        let message = NewMessage {
            id: id.to_owned(),
            space: space.to_owned(),
            author: self.author(),
            kind: MessageKind::Tool,
            text: String::new(),
            reply_to: None,
            status: MessageStatus::Streaming,
            call: Some(external_call_id(&self.agent.id, &self.run, call)),
            metadata: Some(Json::of(shown)?),
            created: now(),
        };
        Ok([Change::PostMessage(message), message_event("message.created", space)])
    }

    fn update(
        &self,
        id: &str,
        space: &str,
        shown: &ShownCall,
        status: MessageStatus,
        expected: Option<MessageStatus>,
    ) -> Result<[Change; 2], StoreError> {
        let update = MessageUpdate {
            id: id.to_owned(),
            expected,
            text: None,
            status: Some(status),
            metadata: Some(Json::of(shown)?),
            updated: now(),
        };
        Ok([Change::UpdateMessage(update), message_event("message.updated", space)])
    }

    async fn write(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        match self.state.write(changes).await {
            // The call ran before its process died, and posted the message then. The event was written with
            // it.
            Err(StoreError::AlreadyExists { .. }) => Ok(()),
            written => written.map(drop),
        }
    }
}

/// Returns the changes that mark a text as not sent.
fn fail_text(id: &str, space: &str) -> [Change; 2] {
    let update = MessageUpdate {
        id: id.to_owned(),
        expected: Some(MessageStatus::Streaming),
        text: None,
        status: Some(MessageStatus::Error),
        metadata: None,
        updated: now(),
    };
    [Change::UpdateMessage(update), message_event("message.updated", space)]
}

/// The outcome of a call so far, for readers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ShownOutcome {
    /// The call has this result.
    Output(Value),
    /// The call has no result.
    Error {
        /// The message that the model reads.
        message: String,
        /// Whether a result can still be submitted, because the run has only stopped waiting.
        takes_result: bool,
    },
    /// The result comes later.
    Pending,
}

/// Returns the event of the message that the previous change has posted or changed. If nothing was changed,
/// there is no event.
pub(crate) fn message_event(kind: &'static str, space: &str) -> Change {
    let topics = vec![topic::for_space(space)];
    Change::derived(move |applied| {
        let Some(ChangeResult::Posted(message) | ChangeResult::Updated { is_changed: true, message }) =
            applied.last()
        else {
            return Ok(Vec::new());
        };
        let message = from_store::message((**message).clone())?;
        Ok(vec![event(kind, topics, &json!({ "message": message }))?])
    })
}
