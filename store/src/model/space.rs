//! Spaces and their members.

use super::ParticipantKind;

/// A space that is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSpace {
    /// The id, unique in the store. The id of a removed space is free once [`SpaceStore::sweep_spaces`] has
    /// removed all its rows.
    ///
    /// [`SpaceStore::sweep_spaces`]: crate::SpaceStore::sweep_spaces
    pub id: String,
    /// The name, as members see it.
    pub name: String,
    /// The caller's current time.
    pub created: i64,
}

/// A stored space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// The id, unique in the store.
    pub id: String,
    /// The name, as members see it.
    pub name: String,
    /// When it was added.
    pub created: i64,
    /// The number of its members.
    pub members: i64,
    /// The number of its messages, which is the ordinal of the last.
    pub messages: i64,
}

/// A member of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The id of the participant.
    pub id: String,
    /// Whether it is a person or an agent.
    pub kind: ParticipantKind,
    /// The current name of the participant.
    pub name: String,
    /// When it joined.
    pub joined: i64,
}
