//! Messages of a space.

use super::{ParticipantKind, status::statuses};
use crate::json::Json;

statuses! {
    /// The kind of a message.
    MessageKind {
        /// Text by its author.
        Text = "text",
        /// A call of a tool that members see.
        Tool = "tool",
    }
}

statuses! {
    /// The status of a message.
    MessageStatus {
        /// The author is still writing it.
        Streaming = "streaming",
        /// A member must do something, for example fill in a form.
        RequiresAction = "requires_action",
        /// It is complete.
        Complete = "complete",
        /// The author could not finish it.
        Error = "error",
    }
}

/// The author of a message, as it was when the message was posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// The id of the participant.
    pub id: String,
    /// Whether it is a person or an agent.
    pub kind: ParticipantKind,
    /// The name of the participant.
    pub name: String,
}

/// A message that is posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The id, unique in the store.
    pub id: String,
    /// The id of the space that it is posted in.
    pub space: String,
    /// The author. A store does not check that the author is a member of the space.
    pub author: Author,
    /// Whether it is text or shows a call.
    pub kind: MessageKind,
    /// The text, which a search finds.
    pub text: String,
    /// The message of the same space that it replies to.
    pub reply_to: Option<String>,
    /// The status that it is posted with.
    pub status: MessageStatus,
    /// The call that it shows, for [`SpaceStore::call_message`](crate::SpaceStore::call_message).
    pub call: Option<String>,
    /// Further data that the caller keeps with it, for example input and output of a tool.
    pub metadata: Option<Json>,
    /// The caller's current time.
    pub created: i64,
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceMessage {
    /// The id, unique in the store.
    pub id: String,
    /// The id of the space that it was posted in.
    pub space: String,
    /// The message's position in the space, from 1, without gaps.
    pub ordinal: i64,
    /// The author, as it was when the message was posted.
    pub author: Author,
    /// Whether it is text or shows a call.
    pub kind: MessageKind,
    /// The text, which a search finds.
    pub text: String,
    /// The message that it replies to.
    pub reply_to: Option<String>,
    /// The current status.
    pub status: MessageStatus,
    /// The call that it shows.
    pub call: Option<String>,
    /// Further data that the caller keeps with it.
    pub metadata: Option<Json>,
    /// When it was posted.
    pub created: i64,
    /// When it was last changed.
    pub updated: i64,
}

/// A change of a message. A field that is `None` is not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageUpdate {
    /// The id of the message.
    pub id: String,
    /// The status that the message must have. With another status, nothing is changed. `None` allows any status.
    pub expected: Option<MessageStatus>,
    /// The new text.
    pub text: Option<String>,
    /// The new status.
    pub status: Option<MessageStatus>,
    /// The new metadata.
    pub metadata: Option<Json>,
    /// The caller's current time.
    pub updated: i64,
}
