//! Changes that are written together, and their results.

use std::fmt;

use super::{
    MessageUpdate, NewEvent, NewInboxEntry, NewMessage, NewNote, NoteKind, ResultDelivery, SpaceMessage,
    StoredExternalCall,
};
use crate::error::StoreError;

/// A change of [`SpaceStore::apply`](crate::SpaceStore::apply). The changes of one list are written in its order, all
/// or none.
#[derive(Debug)]
pub enum Change {
    /// Posts a message. Gives [`ChangeResult::Posted`].
    ///
    /// Errors: [`StoreError::NotFound`] for its space, or for the message of the space that it replies to;
    /// [`StoreError::AlreadyExists`].
    PostMessage(NewMessage),
    /// Changes a message. Gives [`ChangeResult::Updated`].
    ///
    /// Errors: [`StoreError::NotFound`].
    UpdateMessage(MessageUpdate),
    /// Appends an event. Gives [`ChangeResult::Event`].
    AppendEvent(NewEvent),
    /// Sends an entry to an inbox. Gives [`ChangeResult::Inbox`].
    PushInbox(NewInboxEntry),
    /// Adds a member to a space. Gives [`ChangeResult::Joined`].
    ///
    /// Errors: [`StoreError::NotFound`] for the space or the participant.
    AddMember {
        /// The id of the space.
        space: String,
        /// The id of the participant.
        participant: String,
        /// The caller's current time.
        joined: i64,
    },
    /// Removes a member from a space. Gives [`ChangeResult::Left`].
    ///
    /// Errors: [`StoreError::NotFound`] for the space.
    RemoveMember {
        /// The id of the space.
        space: String,
        /// The id of the participant.
        participant: String,
    },
    /// Sets notes of an agent. Gives [`ChangeResult::NotesSet`].
    SetNotes {
        /// The id of the agent.
        agent: String,
        /// The kind of the notes.
        kind: NoteKind,
        /// The notes to add. A note with the same id is replaced.
        notes: Vec<NewNote>,
        /// The caller's current time.
        now: i64,
    },
    /// Removes notes of an agent. Gives [`ChangeResult::NotesRemoved`].
    RemoveNotes {
        /// The id of the agent.
        agent: String,
        /// The kind of the notes.
        kind: NoteKind,
        /// Their ids.
        ids: Vec<String>,
    },
    /// Changes that depend on the results of the changes before them.
    Derived(DerivedChanges),
}

/// Makes changes from the results of the changes before, for example the event of a message from its ordinal,
/// or no event if the message was not changed. The made changes replace it in the list, and only they have an
/// [`ChangeResult`].
pub struct DerivedChanges(Box<DeriveChanges>);

/// A function of [`DerivedChanges`].
type DeriveChanges = dyn FnOnce(&[ChangeResult]) -> Result<Vec<Change>, StoreError> + Send;

impl DerivedChanges {
    pub(crate) fn derive(self, applied: &[ChangeResult]) -> Result<Vec<Change>, StoreError> {
        (self.0)(applied)
    }
}

impl fmt::Debug for DerivedChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DerivedChanges").finish()
    }
}

impl Change {
    /// Returns a [`Change::Derived`]. The function gets the results of all changes before it, in order. It runs
    /// while the transaction holds its locks, in SQLite on the thread that writes: it must be short, must not
    /// wait, and must not panic. Its error rolls all changes back.
    pub fn derived(
        changes: impl FnOnce(&[ChangeResult]) -> Result<Vec<Self>, StoreError> + Send + 'static,
    ) -> Self {
        Self::Derived(DerivedChanges(Box::new(changes)))
    }
}

/// The result of a [`Change`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeResult {
    /// A message is posted.
    Posted(Box<SpaceMessage>),
    /// A message was to be changed.
    Updated {
        /// Whether it was changed: false if its status was not the expected one.
        is_changed: bool,
        /// The message after the change, or unchanged.
        message: Box<SpaceMessage>,
    },
    /// An event is appended.
    Event {
        /// The id of the event.
        id: i64,
    },
    /// An entry is sent.
    Inbox {
        /// Its ordinal.
        ordinal: i64,
    },
    /// A participant is a member.
    Joined {
        /// Whether the participant was not a member before.
        is_new: bool,
    },
    /// A participant is not a member.
    Left {
        /// Whether the participant was a member before.
        was_member: bool,
    },
    /// Notes are set.
    NotesSet,
    /// Notes are removed.
    NotesRemoved {
        /// The number of notes that were removed.
        count: u64,
    },
    /// A call has its result, before all other changes. Only in
    /// [`SpaceStore::resolve_external_call_with`](crate::SpaceStore::resolve_external_call_with).
    Resolved(ResultDelivery),
}

/// The result of [`SpaceStore::resolve_external_call_with`](crate::SpaceStore::resolve_external_call_with).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveOutcome {
    /// The call has this result now, and the changes are written.
    Resolved {
        /// The recipient of the result.
        delivery: ResultDelivery,
        /// The results of the changes. The first is [`ChangeResult::Resolved`].
        applied: Vec<ChangeResult>,
    },
    /// The call no longer takes a result. Nothing was written.
    AlreadyClosed {
        /// The call, with its result if it has one. [`StoredExternalCall::status_at`] says whether it has
        /// expired.
        call: Box<StoredExternalCall>,
        /// The recipient of its result. `None` if there is no result, or if an older version of this program
        /// wrote it.
        delivery: Option<ResultDelivery>,
    },
}
