//! [`SpaceStore`]: the part of a store that a gateway of agents and spaces needs besides runs.

use async_trait::async_trait;

use crate::{
    error::StoreError,
    json::Json,
    model::{
        CallWithMessage, Change, ChangeResult, DuePlan, Event, EventBounds, ExternalCallFilter, Member,
        NewEvent, NewNote, NewParticipant, NewSpace, Note, NoteKind, Page, PageRequest, Participant,
        ParticipantKind, ParticipantUpdate, ResolveOutcome, Space, SpaceMessage, Token,
    },
    store::{AgeCursor, RunStore},
};

/// A store of participants and spaces, of their messages and events, and of agents' notes.
///
/// Ids, times, transactions, errors and cancellation are as in [`RunStore`].
///
/// # Examples
/// A message and its event are written together. The event has the ordinal, which the store gives.
/// ```
/// # use portcullis_store::{
/// #     ChangeResult, Author, Change, GatewayStore, Json, MessageKind, MessageStatus, NewEvent, NewMessage, NewSpace,
/// #     ParticipantKind, StoreError, open_gateway,
/// # };
/// # async fn example(path: &str) -> Result<(), StoreError> {
/// let store = open_gateway(path).await?;
/// store.create_space(NewSpace { id: "s1".to_owned(), name: "Office".to_owned(), created: 1_000 }).await?;
/// let message = NewMessage {
///     id: "m1".to_owned(),
///     space: "s1".to_owned(),
///     author: Author { id: "u1".to_owned(), kind: ParticipantKind::User, name: "Anna".to_owned() },
///     kind: MessageKind::Text,
///     text: "Good morning".to_owned(),
///     reply_to: None,
///     status: MessageStatus::Complete,
///     call: None,
///     metadata: None,
///     created: 2_000,
/// };
/// let event = Change::derived(|applied| {
///     let Some(ChangeResult::Posted(message)) = applied.first() else { return Ok(Vec::new()) };
///     Ok(vec![Change::AppendEvent(NewEvent {
///         topics: vec![format!("space:{}", message.space)],
///         kind: "message.created".to_owned(),
///         data: Json::of(&(&message.id, message.ordinal))?,
///         created: message.created,
///     })])
/// });
/// let applied = store.apply(vec![Change::PostMessage(message), event]).await?;
/// assert!(matches!(&*applied, [ChangeResult::Posted(_), ChangeResult::Event { id: 1 }]));
/// # Ok(())
/// # }
/// # let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
/// # let folder = tempfile::Builder::new().permissions(private).tempdir().expect("a folder");
/// # let path = folder.path().join("runs.db");
/// # tokio::runtime::Runtime::new().expect("starts").block_on(example(path.to_str().expect("the path is
/// UTF-8"))).expect("works");
/// ```
///
/// # Errors
/// Each method can fail with [`StoreError::Database`], [`StoreError::Closed`], [`StoreError::Name`],
/// [`StoreError::Nul`], [`StoreError::Invalid`] and [`StoreError::Limit`]. A method's own section names
/// further errors, or [`StoreError::Database`] if there are none.
#[async_trait]
pub trait SpaceStore: Send + Sync + std::fmt::Debug {
    /// Adds a participant, with version 1.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] if a participant has this id.
    async fn create_participant(&self, participant: NewParticipant) -> Result<(), StoreError>;

    /// Returns a participant.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no participant has this id.
    async fn participant(&self, id: &str) -> Result<Participant, StoreError>;

    /// Lists the participants of a kind, or all, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn participants(
        &self,
        kind: Option<ParticipantKind>,
        page: PageRequest<AgeCursor>,
    ) -> Result<Page<Participant, AgeCursor>, StoreError>;

    /// Changes a participant, and returns its new version.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Changed`] if its version is not the one that the caller has read.
    async fn update_participant(&self, update: ParticipantUpdate) -> Result<i64, StoreError>;

    /// Removes a participant with its memberships, its notes, and the tokens whose subject has its kind and id. The
    /// entries of its inbox are consumed. Its messages and runs stay.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no participant has this id.
    async fn remove_participant(&self, id: &str, now: i64) -> Result<(), StoreError>;

    /// Adds a space.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`], even for a space that is removed and not yet swept.
    async fn create_space(&self, space: NewSpace) -> Result<(), StoreError>;

    /// Returns a space.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no space has this id, or if it was removed.
    async fn space(&self, id: &str) -> Result<Space, StoreError>;

    /// Lists the spaces of a member, or all, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn spaces(
        &self,
        member: Option<&str>,
        page: PageRequest<AgeCursor>,
    ) -> Result<Page<Space, AgeCursor>, StoreError>;

    /// Removes a space with its members. No method finds it or its messages from now on. [`Self::sweep_spaces`] removes
    /// the messages, and the events that have no other topic than this one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no space has this id, or if it was removed before.
    async fn remove_space(&self, id: &str, topic: &str) -> Result<(), StoreError>;

    /// Removes rows that removed spaces have left, at most this many (of words, 16 times as many), and returns their
    /// number. 0 means that none are left.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn sweep_spaces(&self, at_most: u32) -> Result<u64, StoreError>;

    /// Adds a member to a space. Returns whether the participant was not a member before.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the space or the participant.
    async fn add_member(&self, space: &str, participant: &str, joined: i64) -> Result<bool, StoreError>;

    /// Removes a member from a space. Returns whether the participant was a member before.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the space.
    async fn remove_member(&self, space: &str, participant: &str) -> Result<bool, StoreError>;

    /// Lists the members of a space, in the order in which they joined.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no space has this id, or if it was removed.
    async fn members(
        &self,
        space: &str,
        page: PageRequest<AgeCursor>,
    ) -> Result<Page<Member, AgeCursor>, StoreError>;

    /// Returns whether a participant is a member of a space. False without such a space or participant.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn is_member(&self, space: &str, participant: &str) -> Result<bool, StoreError>;

    /// Returns whether two participants are members of the same space.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn share_space(&self, participant: &str, other: &str) -> Result<bool, StoreError>;

    /// Returns a message.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no message has this id, or if its space was removed.
    async fn space_message(&self, id: &str) -> Result<SpaceMessage, StoreError>;

    /// Returns the newest message that shows a call; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn call_message(&self, call: &str) -> Result<Option<SpaceMessage>, StoreError>;

    /// Lists calls, the newest first, each with the data of the newest message that shows it.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn shown_calls(
        &self,
        filter: ExternalCallFilter,
        page: PageRequest<AgeCursor>,
    ) -> Result<Page<CallWithMessage, AgeCursor>, StoreError>;

    /// Lists messages of a space, the newest first. The cursor is an ordinal.
    ///
    /// With a search, only messages that have all of its words, in any order and case. Words are runs of letters and
    /// digits; letters of scripts without spaces are words of their own. A search without words finds nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no space has this id, or if it was removed.
    async fn space_messages(
        &self,
        space: &str,
        search: Option<&str>,
        page: PageRequest<i64>,
    ) -> Result<Page<SpaceMessage, i64>, StoreError>;

    /// Appends an event, and returns its id.
    ///
    /// # Errors
    /// [`StoreError::Limit`] for an event that is too large or has too many topics.
    async fn append_event(&self, event: NewEvent) -> Result<i64, StoreError>;

    /// Lists the events of a topic, or all, in the order of their ids. The cursor is an id: the first page
    /// without one begins with the oldest event.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn events(
        &self,
        topic: Option<&str>,
        page: PageRequest<i64>,
    ) -> Result<Page<Event, i64>, StoreError>;

    /// Returns the newest id of the log, and the largest id that was removed from it.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn event_bounds(&self) -> Result<EventBounds, StoreError>;

    /// Removes the oldest events, up to the first that was appended at this time or later, at most this many, and
    /// returns their number. If it is less than `at_most`, none are left.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn remove_events_before(&self, time: i64, at_most: u32) -> Result<u64, StoreError>;

    /// Adds notes of an agent, or replaces those with the same ids: all, or none.
    ///
    /// # Errors
    /// [`StoreError::Limit`] for a note that is too large, or if the agent would have too many.
    async fn set_notes(
        &self,
        agent: &str,
        kind: NoteKind,
        notes: Vec<NewNote>,
        now: i64,
    ) -> Result<(), StoreError>;

    /// Removes notes of an agent, and returns how many there were.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn remove_notes(&self, agent: &str, kind: NoteKind, ids: Vec<String>) -> Result<u64, StoreError>;

    /// Lists the notes of an agent of one kind, in the order in which they were first set.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn notes(
        &self,
        agent: &str,
        kind: NoteKind,
        page: PageRequest<AgeCursor>,
    ) -> Result<Page<Note, AgeCursor>, StoreError>;

    /// Sends plans that are due to the inboxes of their agents, at most this many, as entries
    /// [`PLAN_ENTRY`](crate::PLAN_ENTRY), and sets when they are due again: the first time after now, or
    /// none. If several processes take plans, each plan is taken once. If it returns fewer than
    /// `at_most`, none are left.
    ///
    /// # Errors
    /// [`StoreError::Database`]. A full inbox is not an error: see [`DuePlan::ordinal`].
    async fn take_due_plans(&self, now: i64, at_most: u32) -> Result<Vec<DuePlan>, StoreError>;

    /// Adds a token.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] for its id or its hash.
    async fn add_token(&self, token: Token) -> Result<(), StoreError>;

    /// Returns the token with this hash; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn find_token(&self, hash: &str) -> Result<Option<Token>, StoreError>;

    /// Lists all tokens, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn tokens(&self, page: PageRequest<AgeCursor>) -> Result<Page<Token, AgeCursor>, StoreError>;

    /// Removes a token. Returns whether there was one.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn remove_token(&self, id: &str) -> Result<bool, StoreError>;

    /// Removes all tokens of a subject, and returns their number.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn remove_tokens_of(&self, subject_kind: &str, subject: &str) -> Result<u64, StoreError>;

    /// Returns the names of the inboxes that begin with a prefix and have unconsumed entries, in order. The
    /// cursor is a name.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn inboxes_with_entries(
        &self,
        prefix: &str,
        page: PageRequest<String>,
    ) -> Result<Page<String, String>, StoreError>;

    /// Writes changes in their order, all or none. Returns the result of each, in the same order.
    ///
    /// # Errors
    /// The error of the first change that fails. [`Change`] names them.
    async fn apply(&self, changes: Vec<Change>) -> Result<Vec<ChangeResult>, StoreError>;

    /// Stores the result of a call, as [`RunStore::resolve_external_call`] does, and writes changes, all or none. A
    /// call that no longer takes a result is returned as it is, without the changes.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the call; the error of the first change that fails. The call then stays as it was.
    async fn resolve_external_call_with(
        &self,
        id: &str,
        result: Json,
        now: i64,
        changes: Vec<Change>,
    ) -> Result<ResolveOutcome, StoreError>;
}

/// A store of runs and of spaces in one place.
pub trait GatewayStore: RunStore + SpaceStore {}

impl<S: RunStore + SpaceStore> GatewayStore for S {}
