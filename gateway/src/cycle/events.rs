//! [`CycleEvents`]: passes the events of a loop on to the gateway's readers.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use portcullis_adapters::event_formats::parse_partial;
use portcullis_agent::{AgentEvent, EventEmitter};
use portcullis_store::StoreError;
use portcullis_types::{ToolEvent, ToolOutcome, ToolResult, async_trait};
use serde_json::{Value, json};

use super::space::{CycleSpace, ShownOutcome};
use crate::{builtins::SEND_MESSAGE, hub::LiveEvent};

/// The maximum size of arguments that are shown while they arrive: 64 KiB. The complete arguments always
/// follow.
const MAX_PARTIAL: usize = 64 * 1024;

/// The minimum growth, in bytes, before incomplete arguments are shown again.
const MIN_GROWTH: usize = 16;

/// Passes the events of a loop on to the gateway's readers. The loop waits until an event is stored.
pub(super) struct CycleEvents {
    space: Arc<CycleSpace>,
    /// The incomplete arguments by call: their text, and how much of it was shown.
    arriving: Mutex<HashMap<String, (String, usize)>>,
}

impl CycleEvents {
    pub(super) fn new(space: Arc<CycleSpace>) -> Self {
        Self { space, arriving: Mutex::default() }
    }

    async fn show(&self, event: &AgentEvent) -> Result<(), StoreError> {
        match event {
            AgentEvent::Tool(ToolEvent::ArgumentsDelta { call_id, tool, delta }) => {
                let is_new = !self.arriving.lock().contains_key(call_id);
                if is_new && !tool.is_empty() {
                    self.space.show_begin(call_id, tool, None).await?;
                }
                self.show_arriving(call_id, tool, delta);
                Ok(())
            }
            AgentEvent::Tool(ToolEvent::Requested { call_id, tool, arguments }) => {
                self.arriving.lock().remove(call_id);
                // Show arguments that are not JSON as text. The call is refused.
                let input =
                    serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments.as_str()));
                self.space.show_begin(call_id, tool, Some(&input)).await
            }
            AgentEvent::ToolEnd { result } => {
                self.space.show_outcome(&result.call_id, call_end(result)).await
            }
            // An answer that was cut off leaves calls without an end.
            AgentEvent::TurnEnd { .. } | AgentEvent::AgentEnd { .. } => {
                let cut_off: Vec<_> = self.arriving.lock().drain().map(|(call, _)| call).collect();
                for call in cut_off {
                    let message = "the model's answer was cut off".to_owned();
                    self.space
                        .show_outcome(&call, ShownOutcome::Error { message, takes_result: false })
                        .await?;
                }
                Ok(())
            }
            AgentEvent::AgentStart { .. }
            | AgentEvent::TurnStart { .. }
            | AgentEvent::TextDelta { .. }
            | AgentEvent::ThinkingDelta { .. }
            | AgentEvent::MessageEnd { .. }
            | AgentEvent::Tool(_)
            | AgentEvent::Steered { .. } => Ok(()),
        }
    }

    /// Shows the arguments so far, once they have grown by an eighth.
    fn show_arriving(&self, call: &str, tool: &str, delta: &str) {
        let partial = {
            let mut arriving = self.arriving.lock();
            let (text, shown) = arriving.entry(call.to_owned()).or_default();
            if text.len() + delta.len() > MAX_PARTIAL {
                return;
            }
            text.push_str(delta);
            // Each event repeats all arguments. Without this rule, the bytes sent would grow with the square
            // of their length.
            if text.len() < *shown + MIN_GROWTH.max(*shown / 8) {
                return;
            }
            *shown = text.len();
            parse_partial(text)
        };
        let Some(partial) = partial else { return };
        if tool == SEND_MESSAGE
            && let Some(text) = partial["text"].as_str()
        {
            self.space.show_text(call, text);
            return;
        }
        let (id, topics) = self.space.streamed(call);
        let data = json!({
            "callId": id,
            "runId": self.space.run,
            "name": tool,
            "partialInput": partial,
        });
        let event = LiveEvent { topics: topics.into(), kind: "tool.streaming", data: data.to_string() };
        self.space.state.hub.send(event);
    }
}

/// Returns how a call has ended, for readers.
fn call_end(result: &ToolResult) -> ShownOutcome {
    match &result.outcome {
        ToolOutcome::Output(output) => match super::executor::error_of_output(output) {
            Some((message, takes_result)) => ShownOutcome::Error { message, takes_result },
            None => ShownOutcome::Output(
                output.structured.clone().unwrap_or_else(|| Value::from(output.joined_text())),
            ),
        },
        ToolOutcome::Error(error) => ShownOutcome::Error { message: error.to_string(), takes_result: false },
        ToolOutcome::Pending { .. } => ShownOutcome::Pending,
    }
}

#[async_trait]
impl EventEmitter for CycleEvents {
    async fn emit(&self, event: AgentEvent) {
        // Continue the run: events only inform, and the store has the run's messages.
        if let Err(error) = self.show(&event).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot store an event");
        }
    }

    /// Ignores events of a running call: the messages of the calls already show that they wait.
    fn emit_now(&self, _event: AgentEvent) {}
}
