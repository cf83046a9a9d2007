//! Participants: the users and agents that meet in spaces.

use super::status::statuses;
use crate::json::Json;

statuses! {
    /// Whether a participant is a person or an agent.
    ParticipantKind {
        /// A person, who uses a client.
        User = "user",
        /// An agent, which a model drives.
        Agent = "agent",
    }
}

/// A participant that is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewParticipant {
    /// The id, unique among all participants.
    pub id: String,
    /// Whether it is a person or an agent.
    pub kind: ParticipantKind,
    /// The name, as others see it.
    pub name: String,
    /// The caller's description of it.
    pub definition: Json,
    /// The caller's current time.
    pub created: i64,
}

/// A stored participant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// The id, unique among all participants.
    pub id: String,
    /// Whether it is a person or an agent.
    pub kind: ParticipantKind,
    /// The name, as others see it.
    pub name: String,
    /// The caller's description of it.
    pub definition: Json,
    /// The version: 1 at first, and one more after each change.
    pub version: i64,
    /// When it was added.
    pub created: i64,
    /// When it was last changed.
    pub updated: i64,
}

/// A change of a participant. The kind cannot change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParticipantUpdate {
    /// The id of the participant.
    pub id: String,
    /// The version that the caller has read.
    pub version: i64,
    /// The new name.
    pub name: String,
    /// The new definition.
    pub definition: Json,
    /// The caller's current time.
    pub updated: i64,
}
