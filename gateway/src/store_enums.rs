//! Enums of the store in the JSON form of the interface.

use portcullis_store::{MessageKind, MessageStatus, ParticipantKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The kind of a participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ParticipantKind)]
pub(crate) enum ParticipantKindJson {
    /// A person.
    User,
    /// An agent.
    Agent,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MessageKind)]
pub(crate) enum MessageKindJson {
    /// A text that a member has written.
    Text,
    /// A call of a visible tool.
    Tool,
}

/// The status of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MessageStatus)]
pub(crate) enum MessageStatusJson {
    /// Its arguments arrive, or its call runs.
    Streaming,
    /// Its call waits for a result from outside.
    RequiresAction,
    /// It is complete.
    Complete,
    /// Its call has failed.
    Error,
}

impl From<ParticipantKind> for ParticipantKindJson {
    fn from(kind: ParticipantKind) -> Self {
        match kind {
            ParticipantKind::User => Self::User,
            ParticipantKind::Agent => Self::Agent,
        }
    }
}

impl From<MessageKind> for MessageKindJson {
    fn from(kind: MessageKind) -> Self {
        match kind {
            MessageKind::Text => Self::Text,
            MessageKind::Tool => Self::Tool,
        }
    }
}

impl From<MessageStatus> for MessageStatusJson {
    fn from(status: MessageStatus) -> Self {
        match status {
            MessageStatus::Streaming => Self::Streaming,
            MessageStatus::RequiresAction => Self::RequiresAction,
            MessageStatus::Complete => Self::Complete,
            MessageStatus::Error => Self::Error,
        }
    }
}
