//! The resources of the interface, as JSON has them: keys in camel case, times as RFC 3339 in UTC.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use crate::store_enums::{MessageKindJson, MessageStatusJson, ParticipantKindJson};

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Listing<T> {
    /// The items of this page.
    pub(crate) items: Vec<T>,
    /// The cursor of the next page, for the parameter `after`; null on the last page.
    pub(crate) next: Option<String>,
}

/// A person.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct User {
    pub(crate) id: String,
    pub(crate) kind: ParticipantKindJson,
    pub(crate) name: String,
    pub(crate) created_at: String,
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) kind: ParticipantKindJson,
    pub(crate) name: String,
    pub(crate) instructions: String,
    /// The model; null means the gateway's model.
    pub(crate) model: Option<String>,
    /// The capabilities; null if the agent has every tool that the policy offers.
    pub(crate) capabilities: Option<Vec<String>>,
    #[schema(value_type = Vec<Object>)]
    pub(crate) tools: Vec<Value>,
    /// The MCP servers; null if there are none.
    #[schema(value_type = Option<Object>)]
    pub(crate) mcp: Option<Value>,
    pub(crate) status: AgentStatus,
    pub(crate) created_at: String,
}

/// Whether an agent has a run in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AgentStatus {
    /// It waits for an entry of its inbox.
    Idle,
    /// A run is in progress.
    Running,
}

/// An agent as a client describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgentDefinition {
    /// The name that people see: 1 to 80 characters, none of them a control character.
    #[schema(min_length = 1, max_length = 80)]
    pub(crate) name: String,
    /// The instructions for the model, at most 64 KiB.
    #[serde(default)]
    #[schema(max_length = 65536)]
    pub(crate) instructions: String,
    /// The model, as the provider knows it. Default: that of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// Names of capabilities: the agent has their tools beside its own, and no other shipped tools. Default: all tools
    /// that the policy offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 16)]
    pub(crate) capabilities: Option<Vec<String>>,
    /// Tool configurations in the form of specification 003, at most 64.
    #[serde(default)]
    #[schema(value_type = Vec<Object>, max_items = 64)]
    pub(crate) tools: Vec<Value>,
    /// MCP servers in the form of specification 003: `{"servers": [{"name", "url", "transport", "allowedTools"}]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) mcp: Option<Value>,
}

/// A space, without its members and messages.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Space {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) created_at: String,
    pub(crate) member_count: u64,
}

/// A participant that is a member of a space. `id` is the participant's.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) kind: ParticipantKindJson,
    pub(crate) name: String,
    pub(crate) joined_at: String,
}

/// The author of a message, as it was when the message was written.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Author {
    pub(crate) id: String,
    pub(crate) kind: ParticipantKindJson,
    pub(crate) name: String,
}

/// A message of a space.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Message {
    pub(crate) id: String,
    /// Its place in the space, from 1, without gaps.
    pub(crate) ordinal: i64,
    pub(crate) space_id: String,
    pub(crate) author: Author,
    pub(crate) kind: MessageKindJson,
    pub(crate) text: String,
    pub(crate) reply_to: Option<String>,
    pub(crate) status: MessageStatusJson,
    /// The call of a message of the kind `tool`.
    pub(crate) tool: Option<ShownCall>,
    pub(crate) created_at: String,
    pub(crate) updated_at: String,
}

/// A call of a visible tool, as its message shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownCall {
    /// The id of the pending call, under which a result is submitted. Until the call is pending: the call's id in its
    /// run.
    pub(crate) call_id: String,
    pub(crate) run_id: String,
    pub(crate) name: String,
    pub(crate) execution_type: String,
    pub(crate) is_async: bool,
    #[schema(value_type = Object)]
    pub(crate) input: Value,
    #[schema(value_type = Option<Object>)]
    pub(crate) output: Option<Value>,
    pub(crate) error: Option<String>,
}

/// An entry of an agent's inbox.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InboxItem {
    pub(crate) ordinal: i64,
    /// `message`, `tool_result` or `plan`.
    pub(crate) kind: String,
    #[schema(value_type = Object)]
    pub(crate) body: Value,
    pub(crate) created_at: String,
}

/// A goal, a memory or a plan of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Note {
    pub(crate) id: String,
    #[schema(value_type = Object)]
    pub(crate) body: Value,
    /// When a plan is due next.
    pub(crate) due_at: Option<String>,
    pub(crate) updated_at: String,
}

/// A run: one cycle of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) agent_id: String,
    /// `running`, `completed`, `failed` or `cancelled`.
    pub(crate) status: String,
    pub(crate) started_at: String,
    pub(crate) updated_at: String,
}

/// A run with its labels and steps.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct RunDetails {
    #[serde(flatten)]
    pub(crate) run: Run,
    /// The labels of what the run has read, which flow rules see.
    pub(crate) labels: Vec<String>,
    pub(crate) steps: Vec<RunStep>,
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunStep {
    pub(crate) kind: String,
    pub(crate) summary: String,
    pub(crate) started_at: String,
    pub(crate) finished_at: String,
}

/// A call whose result comes from outside.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Call {
    pub(crate) call_id: String,
    pub(crate) agent_id: String,
    pub(crate) run_id: String,
    pub(crate) tool_name: String,
    #[schema(value_type = Object)]
    pub(crate) args: Box<RawValue>,
    /// `waiting`, `pending`, `resolved`, `expired` or `cancelled`.
    pub(crate) status: String,
    #[schema(value_type = Option<Object>)]
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) created_at: String,
    pub(crate) expires_at: Option<String>,
    /// `external`, whose result a program submits, or `space`, whose result a person gives.
    pub(crate) execution_type: String,
    /// The space that shows the call; null if no space shows it.
    pub(crate) space_id: Option<String>,
}

/// A question whether a call may run.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Approval)]
pub(crate) struct ApprovalJson {
    pub(crate) id: String,
    pub(crate) run_id: String,
    pub(crate) agent_id: String,
    pub(crate) tool_name: String,
    /// The question, framed for a person.
    pub(crate) question: String,
    /// Binds an answer to this call with these arguments.
    pub(crate) hash: String,
    /// `waiting`, `approved`, `denied` or `expired`.
    pub(crate) status: String,
    pub(crate) created_at: String,
    pub(crate) expires_at: Option<String>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Token {
    pub(crate) id: String,
    /// `admin`, `user`, `agent` or `run`.
    pub(crate) subject: String,
    pub(crate) subject_id: Option<String>,
    pub(crate) created_at: String,
}

/// Formats a store timestamp (milliseconds since the Unix epoch) as RFC 3339 in UTC. An out-of-range timestamp becomes
/// the epoch.
pub(crate) fn format_timestamp(milliseconds: i64) -> String {
    let timestamp = Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{timestamp:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_are_in_utc() {
        assert_eq!(format_timestamp(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(format_timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_timestamp(i64::MAX), "1970-01-01T00:00:00.000Z");
    }
}
