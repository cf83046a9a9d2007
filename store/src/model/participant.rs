//! Participants: the users and agents that meet in spaces.

use super::status::statuses;
use crate::json::Json;

statuses! {
    /// Whether a participant is a person or an agent.
    ParticipantKind {
        /// A person.
        User = "user",
        /// An agent.
        Agent = "agent",
    }
}

/// A participant that is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewParticipant {
    /// Its id, unique among all participants.
    pub id: String,
    /// Whether it is a person or an agent.
    pub kind: ParticipantKind,
    /// Its name, as others see it.
    pub name: String,
    /// The caller's description of it.
    pub definition: Json,
    /// The caller's current time.
    pub created: i64,
}

/// A participant as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// Its id.
    pub id: String,
    /// Whether it is a person or an agent.
    pub kind: ParticipantKind,
    /// Its name.
    pub name: String,
    /// The caller's description of it.
    pub definition: Json,
    /// Its version: 1 at first, and one more after each change.
    pub version: i64,
    /// When it was added.
    pub created: i64,
    /// When it was last changed.
    pub updated: i64,
}

/// A change of a participant. Its kind stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParticipantUpdate {
    /// The participant.
    pub id: String,
    /// The version that the caller has read.
    pub version: i64,
    /// Its name from now on.
    pub name: String,
    /// Its definition from now on.
    pub definition: Json,
    /// The caller's current time.
    pub updated: i64,
}
